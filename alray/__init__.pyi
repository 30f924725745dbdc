"""The types of the Python interface, which `__init__.py` loads when they are used."""

from alray.errors import AlrayError as AlrayError
from alray.python.comparison import Comparison as Comparison
from alray.python.comparison import compare as compare
from alray.python.plans import fit as fit
from alray.python.plans import plan as plan
from alray.python.runs import Run as Run
from alray.python.runs import load_run as load_run
from alray.python.runs import reproduce as reproduce
from alray.python.runs import run as run
from alray.python.studies import Study as Study
from alray.python.studies import load_study as load_study
from alray.python.studies import study as study
from alray.spec.models import Spec as Spec

__version__: str
