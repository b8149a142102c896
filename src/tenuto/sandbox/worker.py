"""The program inside the sandbox: reads a cell, runs it, sends back what came of it. Standard library only.

It shares a process with untrusted code and therefore guards nothing: every limit is the host's. A frame is two
big-endian 32-bit lengths, a JSON header and a binary body.
"""

import ast
import io
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
import time
import traceback

HEADER = struct.Struct(">II")
IMAGES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp")
MEDIA = {
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".csv": "text/csv",
    ".json": "application/json",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".html": "text/html",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".parquet": "application/vnd.apache.parquet",
}


class Channel:
    """The control channel to the host."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)

    def send(self, header, body=b""):
        raw = json.dumps(header, ensure_ascii=True).encode()
        self.socket.sendall(HEADER.pack(len(raw), len(body)) + raw + body)

    def receive(self):
        lengths = self._exactly(HEADER.size)
        if lengths is None:
            return None
        size, body = HEADER.unpack(lengths)
        raw = self._exactly(size)
        self._exactly(body)
        return None if raw is None else json.loads(raw)

    def _exactly(self, size):
        pieces = []
        while size:
            piece = self.socket.recv(min(size, 1 << 20))
            if not piece:
                return None
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def limit(limits):
    """Hard limits equal soft ones, so that code can't raise them again."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))


def warm(imports):
    """Import what most cells need, while nobody waits."""
    for name in imports:
        try:
            __import__(name)
        except ImportError:
            pass


def run(code, namespace):
    """Execute a cell; returns the text of its last expression's value."""
    tree = ast.parse(code, "<cell>", "exec")
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    exec(compile(tree, "<cell>", "exec"), namespace)
    if last is None:
        return ""
    value = eval(compile(last, "<cell>", "eval"), namespace)
    if value is None:
        return ""
    namespace["_"] = value
    draw(value)
    return repr(value)


DRAWN = []


def draw(value):
    """An Altair chart as the last value becomes an image."""
    if type(value).__module__.startswith("altair") and hasattr(value, "save"):
        image = io.BytesIO()
        import noto_cjk_sans_otc
        import vl_convert

        vl_convert.register_font_directory(os.path.dirname(noto_cjk_sans_otc.__file__))
        value.save(image, format="png")
        DRAWN.append(image.getvalue())


def figures():
    """The open Matplotlib figures as PNG, closed afterwards."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    images = []
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        if figure.axes:
            image = io.BytesIO()
            figure.savefig(image, format="png", bbox_inches="tight", dpi=120)
            images.append(image.getvalue())
    pyplot.close("all")
    return images


def listing():
    """Regular files directly in /work, with size and time of change."""
    found = {}
    for name in os.listdir("/work"):
        if not name.startswith("."):
            state = os.lstat(os.path.join("/work", name))
            if stat.S_ISREG(state.st_mode):
                found[name] = (state.st_mtime_ns, state.st_size)
    return found


def send_artifacts(channel, before, limits):
    """Send new and changed files of /work, then figures unless the cell saved images itself."""
    after = listing()
    made = sorted(name for name, state in after.items() if before.get(name) != state)
    pieces = []
    skipped = []
    for name in made:
        size = after[name][1]
        if size > limits["artifact_bytes"]:
            skipped.append("%s: %d bytes are more than the limit" % (name, size))
        elif len(pieces) == limits["artifacts"]:
            skipped.append("%s: too many artifacts in one call" % name)
        else:
            descriptor = os.open(os.path.join("/work", name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as stream:
                pieces.append((name, stream.read(limits["artifact_bytes"])))
    images = DRAWN + figures()
    DRAWN.clear()
    if not any(name.lower().endswith(IMAGES) for name in made):
        pieces += [("figure.png", image) for image in images]
    for name, content in pieces[: limits["artifacts"]]:
        media = MEDIA.get(os.path.splitext(name)[1].lower(), "application/octet-stream")
        channel.send({"op": "artifact", "name": name, "media_type": media}, content)
    return skipped


def describe(error):
    """A traceback without the worker's own frames."""
    frames = traceback.extract_tb(error.__traceback__)
    kept = [frame for frame in frames if frame.filename != __file__]
    lines = traceback.format_list(kept) + traceback.format_exception_only(type(error), error)
    return {
        "type": type(error).__name__,
        "message": str(error)[:4000],
        "traceback": "".join(lines)[-16000:],
    }


def reap():
    """Take leave of the children that the host killed after the last cell: they count as processes."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def cell(channel, message, namespace, limits):
    reap()
    before = listing()
    started = time.monotonic()
    status, error, value, skipped = "ok", None, "", []
    asked, armed = False, False

    def stop(number, frame):
        nonlocal asked, armed
        asked = True
        if armed:
            # The host repeats the signal until it has an answer; only the first one counts, in user code alone.
            armed = False
            raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGINT, stop)
        try:
            armed = True
            if asked:
                raise KeyboardInterrupt
            value = run(message["code"], namespace)[: limits["value_chars"]]
            armed = False
            skipped = send_artifacts(channel, before, limits)
        except KeyboardInterrupt:
            status = "interrupted"
        except SystemExit as stop:
            value = "" if stop.code in (None, 0) else "exit: %s" % (stop.code,)
            skipped = send_artifacts(channel, before, limits)
        except BaseException as problem:
            status, error = "error", describe(problem)
            skipped = send_artifacts(channel, before, limits)
    except KeyboardInterrupt:
        status = "interrupted"
    except BaseException as problem:
        status, error = "error", describe(problem)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    names = sorted(name for name in namespace if isinstance(name, str) and not name.startswith("_"))
    done = {
        "op": "done",
        "id": message["id"],
        "status": status,
        "error": error,
        "value": value,
        "skipped": skipped[:50],
        "names": names[:500],
        "ms": (time.monotonic() - started) * 1000,
    }
    channel.send(done)


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(int(sys.argv[1]))
    setup = json.loads(sys.argv[2])
    limit(setup["rlimits"])
    sys.path.append(setup["packages"])
    if os.path.isdir("/fonts"):
        os.makedirs(os.environ["MPLCONFIGDIR"], exist_ok=True)
        for name in os.listdir("/fonts"):
            with (
                open("/fonts/" + name, "rb") as source,
                open(os.environ["MPLCONFIGDIR"] + "/" + name, "wb") as copy,
            ):
                copy.write(source.read())
    warm(setup["imports"])
    namespace = {"__name__": "__main__", "__builtins__": __builtins__}
    channel.send({"op": "ready"})
    while True:
        message = channel.receive()
        if message is None:
            os._exit(0)
        if message["op"] == "run":
            cell(channel, message, namespace, setup["limits"])


if __name__ == "__main__":
    main()
