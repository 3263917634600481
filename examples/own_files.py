"""Sites of different kinds: a CSV file, a Parquet file and a data frame; columns are matched by name."""

import tempfile
from pathlib import Path

import pandas as pd

import dagora

truth, rows = dagora.simulate(d=6, edges=6, n=600, sites=3, seed=3)
names = ["age", "bmi", "glucose", "insulin", "pressure", "risk"]
frames = [pd.DataFrame(x, columns=names) for x in rows]

with tempfile.TemporaryDirectory() as folder:
    north, south = Path(folder) / "north.csv", Path(folder) / "south.parquet"
    frames[0].to_csv(north, index=False)
    frames[1][names[::-1]].to_parquet(south)  # another order of columns
    result = dagora.learn({"north": north, "south": south, "east": frames[2]})
    result.save(Path(folder) / "result")
    print((Path(folder) / "result" / "edges.csv").read_text())
