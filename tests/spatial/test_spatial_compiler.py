"""Where compiled code is kept."""

import re

from mpi_helpers import ROOT
from mpimbs.spatial import compiler


def test_the_cache_depends_on_every_file_with_a_kernel() -> None:
    """Also on those whose kernels others call: numba looks only at the file that it compiles."""
    package = ROOT / "mpimbs"
    hashed = {path for part in compiler._WITH_KERNELS for path in package.glob(part)}
    holding = {path for path in package.rglob("*.py") if re.search(r"^ *@kernel", path.read_text(), re.MULTILINE)}
    assert holding and holding <= hashed, f"not hashed: {holding - hashed}"
    calling = re.compile(r"^from mpimbs\.(\w+)", re.MULTILINE)
    parts = {name for path in holding if path.parent.name != "study" for name in calling.findall(path.read_text())}
    assert parts <= {"spatial", "sweep", "parallel", "coupling"}, f"kernels import from {parts}"
