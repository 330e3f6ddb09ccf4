"""What the kernel says of a process."""

import os


def descriptors(pid):
    """How many file descriptors it has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def alive(pid):
    """True unless it is gone or only waits to be reaped."""
    return _stat(pid) is not None and _stat(pid)[0] != "Z"


def descendants(pid):
    """Its children and theirs, living ones."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(entry)) and stat[0] != "Z":
            parents.setdefault(int(stat[1]), []).append(int(entry))
    found, open_ = [], [pid]
    while open_:
        children = parents.get(open_.pop(), [])
        found += children
        open_ += children
    return found


def command(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as line:
        return line.read().decode(errors="replace").split("\0")


def sockets_between(some, others):
    """Connected TCP sockets that processes of `some` share with processes of `others`, both ends counted."""
    ends = {}
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as table:
            next(table)
            for line in table:
                fields = line.split()
                if fields[3] == "01":
                    ends[fields[9]] = (fields[1], fields[2])
    ours = {ends[inode] for pid in some for inode in _socket_inodes(pid) if inode in ends}
    theirs = {ends[inode] for pid in others for inode in _socket_inodes(pid) if inode in ends}
    return 2 * sum(1 for local, remote in ours if (remote, local) in theirs)


def _socket_inodes(pid):
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        if link.startswith("socket:["):
            yield link[8:-1]


def _stat(pid):
    """State and parent, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
