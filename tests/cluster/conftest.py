"""The S3 server of the tests of object storage, for jobs that keep their runs there."""

from ..core.storage.conftest import bucket, server  # noqa: F401 - fixtures
