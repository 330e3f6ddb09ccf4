"""`weir up`: one command, a frontend and worker processes below it."""

import pathlib
import shutil
import tempfile

from . import raw
from .processes import Program
from .waiting import until


class Up(Program):
    """A running `weir up` on a port of its choice, ready to answer for a model."""

    def __init__(self, *args):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="weir-acceptance-"))
        super().__init__(["up", "--listen", "127.0.0.1:0", "--run-dir", self.dir / "run", *args], self.dir / "up.log")
        try:
            self.url = self.ready()
            self.address = raw.address(self.url)
            until(lambda: raw.get_json(self.address, "/v1/models")["data"], "a model in /v1/models")
        except BaseException:
            self.stop()
            raise

    def stop(self):
        super().stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
