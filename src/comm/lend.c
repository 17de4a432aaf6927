/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that ranks of this machine read themselves. An arena that is lent is a file with no
 * name; where a body lies in one, the answer names process, descriptor and offset, and a token
 * that is written behind the arena: whoever opens a file that has it has opened this one. The
 * kernel lets in who may look at this process, so in the first place its own user.
 *
 * What is lent stays as it is until the asker says that it has copied it, or is lost or too
 * late. From then on the memory may change under one that still reads: what it has copied is
 * its own by then, the CRC of that is not the answer's, and it takes the answer for corrupt.
 *
 * The owner's thread alone.
 */
#include "comm/comm_internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "comm/start.h"

#define TOOKS_SPARE 64u

/* Whether a list of transports has one that is memory which processes share. */
static bool
has_memory(const char *transports)
{
    static const char *const names[] = {"all", "shm", "sm", "mm", "posix", "sysv", "cma"};

    while (transports && *transports) {
        size_t length = strcspn(transports, ",");

        for (size_t at = 0; at < sizeof(names) / sizeof(names[0]); at++)
            if (strlen(names[at]) == length && memcmp(names[at], transports, length) == 0)
                return true;
        transports += length + (transports[length] == ',');
    }
    return false;
}

int
sti_comm_lend_init(struct sti_comm *comm, const char *transports)
{
    if (transports && !has_memory(transports))
        return 0;
    for (uint32_t rank = 0; rank < comm->world && !comm->lends; rank++)
        comm->lends = rank != comm->rank && comm->peers[rank].node == comm->peers[comm->rank].node;
    if (!comm->lends)
        return 0;
    comm->pid = (uint32_t)getpid();
    comm->max_tooks = 2 * comm->max_pending + TOOKS_SPARE;
    comm->tooks = sti_mem_new(comm->max_tooks, sizeof(struct took));
    comm->views = sti_mem_new(VIEWS_MAX, sizeof(struct view));
    return comm->tooks && comm->views ? 0 : -ENOMEM;
}

void
sti_comm_lend_fini(struct sti_comm *comm)
{
    sti_comm_close_views(comm);
    sti_mem_free(comm->views);
    sti_mem_free(comm->tooks);
}

bool
sti_comm_lends(const struct sti_comm *comm)
{
    return comm->lends;
}

static struct lent *
find_lent(struct sti_comm *comm, const char *base)
{
    for (uint32_t at = 0; at < STI_COMM_LENT_MAX; at++)
        if (comm->lents[at].base == base)
            return &comm->lents[at];
    return NULL;
}

int
sti_comm_lend(struct sti_comm *comm, const struct sti_arena *arena)
{
    struct lent *lent = find_lent(comm, NULL);

    if (!comm->lends || !arena->is_shared)
        return -EINVAL;
    if (!lent)
        return -E2BIG;
    int rc = sti_start_random(lent->token, sizeof(lent->token));
    if (rc < 0)
        return rc;
    if (pwrite(arena->fd, lent->token, sizeof(lent->token), (off_t)arena->n_bytes) !=
        (ssize_t)sizeof(lent->token))
        return -EIO;
    lent->base = arena->base;
    lent->n_bytes = arena->n_bytes;
    lent->fd = arena->fd;
    return 0;
}

/* Peers give up their mappings when they hear of it. The memory does not wait for them. */
void
sti_comm_take_back(struct sti_comm *comm, const struct sti_arena *arena)
{
    struct lent *lent = arena->base ? find_lent(comm, arena->base) : NULL;

    if (!lent)
        return;
    lent->base = NULL;
    for (uint32_t rank = 0; rank < comm->world; rank++) {
        struct sti_wire wire = {
            .kind = STI_WIRE_GONE, .small = lent->token, .n_small = sizeof(lent->token)};

        if (rank == comm->rank || comm->peers[rank].node != comm->peers[comm->rank].node ||
            comm->peers[rank].code != 0 || comm->aborted != 0)
            continue;
        (void)sti_comm_send(comm, rank, &wire); /* a mapping that stays costs addresses only */
    }
}

bool
sti_comm_lies(const struct sti_comm *comm, const void *body, uint64_t n_bytes, uint64_t id,
              unsigned char *bytes)
{
    const char *from = body;

    for (uint32_t at = 0; at < STI_COMM_LENT_MAX; at++) {
        const struct lent *lent = &comm->lents[at];

        if (!lent->base || from < lent->base || n_bytes > lent->n_bytes ||
            (uint64_t)(from - lent->base) > lent->n_bytes - n_bytes)
            continue;
        memcpy(bytes, lent->token, LIES_TOKEN_BYTES);
        sti_wire_put(bytes + 16, (uint64_t)(from - lent->base), 8);
        sti_wire_put(bytes + 24, lent->n_bytes, 8);
        sti_wire_put(bytes + 32, id, 8);
        sti_wire_put(bytes + 40, comm->pid, 4);
        sti_wire_put(bytes + 44, (uint64_t)lent->fd, 4);
        return true;
    }
    return false;
}

int
sti_comm_read_lies(struct lies *ret_lies, const struct sti_wire *wire)
{
    const unsigned char *bytes = wire->small;

    if (wire->n_small != LIES_BYTES)
        return -EBADMSG;
    memcpy(ret_lies->token, bytes, LIES_TOKEN_BYTES);
    ret_lies->offset = sti_wire_get(bytes + 16, 8);
    ret_lies->lent_bytes = sti_wire_get(bytes + 24, 8);
    ret_lies->id = sti_wire_get(bytes + 32, 8);
    ret_lies->pid = (uint32_t)sti_wire_get(bytes + 40, 4);
    ret_lies->fd = (uint32_t)sti_wire_get(bytes + 44, 4);
    return 0;
}
