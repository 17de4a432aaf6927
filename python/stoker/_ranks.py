# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job reach each other, and what each of them holds: plain data."""


class Comm:
    """The way to the other ranks of the job, for stoker.Engine(comm=...): all of them open their
    engines at the same time, and serve each other's samples and save checkpoints together.

        stoker.Engine(comm=stoker.Comm(rank, world, host="10.0.0.1", port=29400, secret=job_id))

    host, port      where rank 0 waits for the others
    exchange        instead: a function that is given this rank's bytes and returns the list of all
                    ranks' bytes, in order of rank; called once, on the thread that opens the
                    engine. What it raises, opening raises.
    secret          known to the ranks of the job alone; without one only the addresses of hosts
                    are let in
    hosts           addresses of the job's machines; default: rank 0's own
    method          "ucx"
    node            names this rank's machine; default: is found out
    transports      as UCX has them: "tcp", "shm,tcp"; default: what the machine has
    start_timeout   seconds until all ranks must be there (60)
    timeout         seconds until a peer that does not answer is given up for a while (10)
    close_timeout   seconds that a loader that is closed serves the others' at most (60)
    tiers_per_rank  the engine's tiers are this rank's alone, not the machine's
    """

    __slots__ = ("rank", "world", "host", "port", "secret", "exchange", "hosts", "method", "node",
                 "transports", "start_timeout", "timeout", "close_timeout", "tiers_per_rank")

    def __init__(self, rank, world, *, host=None, port=None, secret=None, exchange=None,
                 hosts=None, method=None, node=None, transports=None, start_timeout=None,
                 timeout=None, close_timeout=None, tiers_per_rank=False):
        self.rank, self.world, self.host, self.port = rank, world, host, port
        self.secret, self.exchange, self.hosts, self.method = secret, exchange, hosts, method
        self.node, self.transports = node, transports
        self.start_timeout, self.timeout = start_timeout, timeout
        self.close_timeout, self.tiers_per_rank = close_timeout, tiers_per_rank

    def __repr__(self):
        return f"stoker.Comm(rank={self.rank!r}, world={self.world!r})"  # without the secret


class Holding:
    """Which ranks hold a tensor alike, and of what it is a shard, for Checkpoints.save().

    ranks           in rising order, this one among them; None: all
    global_shape    the tensor is a box of one of this shape, which
    start           begins there
    """

    __slots__ = ("ranks", "global_shape", "start")

    def __init__(self, ranks=None, global_shape=None, start=None):
        self.ranks, self.global_shape, self.start = ranks, global_shape, start

    def __repr__(self):
        return f"stoker.Holding({self.ranks!r}, {self.global_shape!r}, {self.start!r})"


Comm.__module__ = Holding.__module__ = "stoker"
