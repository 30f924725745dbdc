"""The types of the Python interface, which `__init__.py` loads when they are used."""

from alray.api.comparison import Comparison as Comparison
from alray.api.comparison import compare as compare
from alray.api.plans import fit as fit
from alray.api.plans import plan as plan
from alray.api.runs import Run as Run
from alray.api.runs import load_run as load_run
from alray.api.runs import reproduce as reproduce
from alray.api.runs import run as run
from alray.api.studies import Study as Study
from alray.api.studies import load_study as load_study
from alray.api.studies import study as study
from alray.config.sections.spec import Spec as Spec
from alray.core.errors import AlrayError as AlrayError

__version__: str
