"""Run benchmarks by name: python -m benchmarks accuracy totals ... [--runs N], or all."""

import argparse
import importlib

from benchmarks import pages, tables

NAMES = (
    "accuracy",
    "one_site",
    "speed",
    "scaling",
    "memory",
    "streaming",
    "growth",
    "peers_continuous",
    "totals",
    "equal_variances",
    "stand_in",
    "auto",
    "scale_free",
    "score_search",
    "networks",
    "large",
    "private_sums",
    "private_runs",
    "dp",
    "leakage",
    "additive",
    "dynamic",
    "confidence",
    "knowledge",
    "mlp",
    "mlp_steps",
    "masked",
    "gpu",
    "gpu_linear",
    "faults",
    "federation",
    "fuzz",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*NAMES, "all"])
    parser.add_argument("--runs", type=int, default=30, help="seeds a cell (default 30)")
    parser.add_argument("--jobs", type=int, default=2, help="processes; timed benchmarks use one")
    parser.add_argument("--first-seed", type=int, default=0, help="other data, where seeds are used")
    options = parser.parse_args()
    tables.first_seed = options.first_seed
    tables.commit()
    for name in NAMES if "all" in options.names else options.names:
        importlib.import_module(f"benchmarks.{name}").main(options.runs, options.jobs)
        pages.main()


if __name__ == "__main__":
    main()
