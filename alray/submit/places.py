"""The folder of a job on the cluster."""

FOLDER = "~/alray-jobs"
"""Where the folders of jobs are made if nothing else is asked for."""

PACKAGE = "package"
"""In the folder of a job: what was sent along."""

RESULT = "result"
"""In the folder of a job: the run folder or study folder."""
