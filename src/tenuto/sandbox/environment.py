"""The sandbox's own Python environment: pandas and friends, a font with Chinese glyphs, nothing of the server.

Made once (`tenuto sandbox setup`), bound read-only into every sandbox. Its font list is prepared here, since
building it anew in each sandbox costs 0.1 s and a stale one hides the font.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tenuto.codec import sha256
from tenuto.disk import write_atomic
from tenuto.errors import SandboxUnavailable

READY = ".tenuto-ready"
FONTS = "tenuto-fonts"

_FONT_SCRIPT = """
import dataclasses, os, sys
from matplotlib import font_manager
import noto_cjk_sans_otc
folder = sys.argv[1]
font = os.path.join(os.path.dirname(noto_cjk_sans_otc.__file__), "NotoSansCJK-Regular.ttc")
known = font_manager.FontManager()
known.addfont(font)
known.ttflist = [entry for entry in known.ttflist if entry.fname.startswith(sys.prefix)]
names = [entry.name for entry in known.ttflist if entry.fname == font]
simplified = [name for name in names if name.endswith(" SC")] or names
inside = [dataclasses.replace(e, fname="/env" + e.fname[len(sys.prefix):]) for e in known.ttflist]
chinese = next(e for e in inside if e.name == simplified[0])
# names that code written for other machines asks for
usual = ("SimHei", "Microsoft YaHei", "PingFang SC", "WenQuanYi Micro Hei", "Noto Sans SC", "Source Han Sans SC")
known.ttflist = inside + [dataclasses.replace(chinese, name=name) for name in usual]
font_manager.json_dump(known, os.path.join(folder, f"fontlist-v{known.__version__}.json"))
with open(os.path.join(folder, "matplotlibrc"), "w") as stream:
    stream.write(f"font.family: DejaVu Sans, {simplified[0]}\\n")
    stream.write(f"font.sans-serif: DejaVu Sans, {simplified[0]}\\n")
    stream.write("axes.unicode_minus: False\\n")
"""


def default_env() -> Path:
    """Beside this installation, so that each installation has the libraries it was tested with."""
    return Path(sys.prefix) / "share" / "tenuto" / "sandbox"


def requirements() -> str:
    """The pinned libraries of the sandbox, one a line."""
    return (files("tenuto.sandbox") / "requirements.txt").read_text("utf-8")


def fingerprint() -> str:
    """Names this set of libraries and this interpreter; another one means building anew."""
    return sha256(f"{requirements()}{sys.version}{_FONT_SCRIPT}".encode())


def is_ready(env: Path) -> bool:
    """Whether `env` was built whole, for this version of Tenuto."""
    try:
        return (env / READY).read_text() == fingerprint()
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Interpreter:
    """What an environment was made from."""

    base: Path
    python: str
    """Below `base`."""
    packages: str
    """Below the environment."""


def interpreter_of(env: Path) -> Interpreter:
    """The interpreter behind `env`. Raises `SandboxUnavailable`."""
    try:
        lines = (env / "pyvenv.cfg").read_text().splitlines()
    except OSError as error:
        raise SandboxUnavailable(
            f"the sandbox has no Python environment at {env}", hint="run `tenuto sandbox setup`"
        ) from error
    values = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    name = "python" + ".".join(values.get("version", "").split(".")[:2])
    return Interpreter(
        Path(values.get("home", "")).resolve().parent, f"bin/{name}", f"lib/{name}/site-packages"
    )


def build(env: Path, say: Callable[[str], None]) -> None:
    """Make `env` from scratch; a half-built one is replaced. Takes about half a minute.

    Raises `SandboxUnavailable` with the last lines of what failed.
    """
    if is_ready(env):
        say(f"the sandbox environment is ready: {env}")
        return
    say(f"building the sandbox environment: {env}")
    shutil.rmtree(env, ignore_errors=True)
    env.parent.mkdir(parents=True, exist_ok=True)
    pip = _make_venv(env)
    listed = env / "requirements.txt"
    listed.write_text(requirements())
    say("installing pandas, NumPy, Matplotlib, Polars, DuckDB, Altair and a font with Chinese glyphs")
    _run([*pip, "install", "--quiet", "--disable-pip-version-check", "--requirement", str(listed)])
    fonts = env / FONTS
    fonts.mkdir()
    _run([str(env / "bin" / "python"), "-I", "-c", _FONT_SCRIPT, str(fonts)])
    _run(
        [str(env / "bin" / "python"), "-I", "-m", "compileall", "-q", "-j", "0", str(env / "lib")],
        check=False,
    )
    write_atomic(env / READY, fingerprint().encode())
    say("done")


def _make_venv(env: Path) -> list[str]:
    """Create the environment; returns the pip command that installs into it.

    Debian's python3 may come without ensurepip: then the pip that is there installs into the environment.
    """
    python = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    if not Path(python).exists():
        python = sys.executable
    try:
        _run([python, "-m", "venv", str(env)])
        return [str(env / "bin" / "python"), "-m", "pip"]
    except SandboxUnavailable:
        shutil.rmtree(env, ignore_errors=True)
        _run([python, "-m", "venv", "--without-pip", str(env)])
        pip = python if _has_pip(python) else sys.executable
        return [pip, "-m", "pip", "--python", str(env / "bin" / "python")]


def _has_pip(python: str) -> bool:
    return (
        subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    )


def _run(command: Sequence[str], *, check: bool = True) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        tail = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise SandboxUnavailable(
            f"building the sandbox environment failed: {tail}",
            hint="check the network and disk space, then run `tenuto sandbox setup` again",
        )
