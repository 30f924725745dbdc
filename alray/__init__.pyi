"""The names of the Python interface, with their types. `__init__.py` reads them here and loads each when it is used."""

from alray.api.callbacks import Callback as Callback
from alray.api.comparison import Comparison as Comparison
from alray.api.comparison import compare as compare
from alray.api.plans import plan as plan
from alray.api.plans import probe as probe
from alray.api.plans import ways as ways
from alray.api.proof import Proof as Proof
from alray.api.proof import prove as prove
from alray.api.runs import Run as Run
from alray.api.runs import load_run as load_run
from alray.api.runs import reproduce as reproduce
from alray.api.runs import run as run
from alray.api.studies import Study as Study
from alray.api.studies import load_study as load_study
from alray.api.studies import study as study
from alray.api.training import train as train
from alray.api.ways_map import map_ways as map_ways
from alray.config.sections.spec import Spec as Spec
from alray.core.errors import AlrayError as AlrayError
from alray.data.python_source import OwnSource
from alray.models.block import Block as Block
from alray.models.component import LocalComponent as LocalComponent
from alray.models.component import read
from alray.models.encoder import pass_on as pass_on
from alray.models.method import Method as Method
from alray.models.readout import classifier as classifier
from alray.models.task import LearningTask
from alray.models.task import ValuesPrediction as ValuesPrediction
from alray.models.task import VectorTask as VectorTask
from alray.models.task import WholeTally as WholeTally
from alray.report.trackers.tracker import TrackedPoint as TrackedPoint
from alray.report.trackers.tracker import TrackedRun as TrackedRun
from alray.report.trackers.tracker import Tracker as Tracker

# Type checkers take a name that an import changes for private.
Source = OwnSource
Task = LearningTask
read_scores = read

__version__: str
