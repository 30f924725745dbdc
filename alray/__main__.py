"""`python -m alray`: the command line without the console script."""

from alray.core.import_path import leave_current_folder

leave_current_folder()  # before anything else is imported

from alray.cli.main import main  # noqa: E402

main()
