"""A notebook in a kernel of Jupyter: what its cells define trains on two stages of Ray, stops and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.own_ray, pytest.mark.timeout(600)]

CELLS = (
    """
import os, signal, threading, time
import torch
from torch import nn
import alray

class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.more = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for layer in self.more:
            x = x + torch.relu(layer(x))
        return self.last(x)

class Rings(torch.utils.data.Dataset):
    '''Whether a point lies outside of a circle.'''

    classes = ("inside", "outside")

    def __init__(self, samples, seed):
        self.points = torch.randn(samples, 2, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        point = self.points[index]
        return point, int(point.norm() > SIZE)

SIZE = 1.2
data = Rings(300, 1), Rings(60, 2), Rings(100, 3)
keys = {"optimizer": {"lr": 1e-2}, "data": {"batch_size": 20}, "progress": False}
""",
    """
torch.manual_seed(4)
net = Net()
runs = {
    "BP": alray.train(net, *data, method="backpropagation", epochs=4, **keys),
    "DGL": alray.train(
        Net, *data, method="decoupled_greedy", epochs=4, **{**keys, "data": {"batch_size": 20, "workers": 1}}
    ),
    "AL": alray.train(net, *data, method={"kind": "associated_learning", "label_dim": 8}, epochs=4, **keys),
}
for name, run in runs.items():
    assert (run.summary.engine, run.summary.stages) == ("ray", 2)
    assert run.summary.accuracy.test > 0.6, (name, run.summary.accuracy)
    inline = alray.reproduce(run, inline=True, progress=False)
    assert inline.same, name
""",
    """
points, labels = data[2].points, torch.tensor([label for _, label in data[2]])
for name, run in runs.items():
    right = run.network()(points).argmax(1) == labels
    assert float(right.double().mean()) == run.evaluate().scores[-1].test, name
plain = alray.load_run(runs["BP"].folder, model=net).model()
assert isinstance(plain, Net)
assert torch.equal(plain(points).argmax(1), runs["BP"].network()(points).argmax(1))
before = nn.functional.cross_entropy(plain(points), labels)
before.backward()
torch.optim.SGD(plain.parameters(), lr=0.05).step()
assert nn.functional.cross_entropy(plain(points), labels) < before
""",
    """
def press_stop(folder):
    while not os.path.exists(f"{folder}/checkpoints/step-00000030/manifest.json"):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press_stop, args=("stopped",), daemon=True).start()
length = {"run": {"steps": 2000, "checkpoint": {"every": "15 steps", "keep": 3}}}
try:
    alray.train(net, *data, output="stopped", **length, **keys)
except KeyboardInterrupt as stopped:
    message = str(stopped)
assert 'alray.load_run(' in message and ".resume(data=..., model=...) continues" in message
done = alray.load_run("stopped").summary.steps
assert 30 <= done < 2000
""",
    """
again = alray.load_run("stopped").resume(
    {"run.steps": done + 15}, model=net, data=data, inline=True, progress=False
)
whole = alray.train(net, *data, inline=True, run={"steps": done + 15}, **keys)
assert again.summary.weights_sha256 == whole.summary.weights_sha256
try:
    alray.load_run("stopped").resume(model=net, data=(Rings(300, 9), Rings(60, 2), Rings(100, 3)))
except alray.AlrayError as error:
    assert "not the data of this run" in str(error)
else:
    raise AssertionError("other data were taken")
print("all is as it should be")
""",
)


def test_what_cells_define_trains_stops_and_goes_on(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="it is in the extra `dev`")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[-1].outputs[-1].text == "all is as it should be\n"
