"""Run benchmarks by name: python -m benchmarks [accuracy|paper|one_site|speed|scaling|memory|all] [--runs N]."""

import argparse
import importlib

NAMES = ("accuracy", "paper", "one_site", "speed", "scaling", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*NAMES, "all"])
    parser.add_argument("--runs", type=int, default=30, help="seeds a cell (default 30)")
    parser.add_argument("--jobs", type=int, default=2, help="processes; timed benchmarks use one")
    options = parser.parse_args()
    for name in NAMES if "all" in options.names else options.names:
        importlib.import_module(f"benchmarks.{name}").main(options.runs, options.jobs)


if __name__ == "__main__":
    main()
