/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers' memory, mapped to be read. A peer's file is opened where the kernel shows it, under
 * the peer's process, and taken for the peer's only with the token in it; it cannot become
 * shorter, so no read of it can fail. It stays mapped, and readable, when the peer has died.
 *
 * Invariant: a view is mapped as long as an answer is being copied out of it.
 *
 * The owner's thread alone; the bytes are any thread's to read.
 */
#include "comm/comm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "/memfd:" STI_ARENA_NAME
#define IDS_MAX (STI_COMM_SMALL_MAX / STI_WIRE_ID_BYTES)

/* Opens a file of another process, if it is one of an arena by its name. */
static int
open_file(const struct lies *lies)
{
    char path[48], name[64];

    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%u", lies->pid, lies->fd);
    ssize_t n = readlink(path, name, sizeof(name));
    if (n < 0)
        return -errno;
    if ((size_t)n < sizeof(FILE_NAME) - 1 || memcmp(name, FILE_NAME, sizeof(FILE_NAME) - 1) != 0)
        return -EXDEV; /* process numbers that mean something else here */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

/* Whether the file is the peer's, and can be read to its end for as long as it is mapped. */
static int
check_file(int fd, const struct lies *lies)
{
    unsigned char token[LIES_TOKEN_BYTES];
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &about) < 0 || about.st_size < 0 ||
        lies->lent_bytes > INT64_MAX - STI_ARENA_EXTRA_BYTES ||
        (uint64_t)about.st_size != lies->lent_bytes + STI_ARENA_EXTRA_BYTES)
        return -EXDEV;
    if (pread(fd, token, sizeof(token), (off_t)lies->lent_bytes) != (ssize_t)sizeof(token) ||
        memcmp(token, lies->token, sizeof(token)) != 0)
        return -EXDEV;
    return 0;
}

static void
close_view(struct view *view)
{
    (void)munmap((void *)(uintptr_t)view->base, view->n_bytes); /* ours */
    view->base = NULL;
}

/* A place for a view: a free one, or that which was not used for the longest time. */
static struct view *
find_place(struct sti_comm *comm)
{
    struct view *oldest = NULL;

    for (uint32_t at = 0; at < VIEWS_MAX; at++) {
        struct view *view = &comm->views[at];

        if (!view->base)
            return view;
        if (view->n_uses == 0 && (!oldest || view->used_at < oldest->used_at))
            oldest = view;
    }
    if (oldest)
        close_view(oldest);
    return oldest;
}

static int
open_view(struct sti_comm *comm, uint32_t peer, const struct lies *lies, struct view **ret_view)
{
    int fd = open_file(lies);

    if (fd < 0)
        return fd;
    int rc = check_file(fd, lies);
    struct view *view = rc == 0 ? find_place(comm) : NULL;
    void *base = view ? mmap(NULL, lies->lent_bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    (void)close(fd); /* the mapping holds the file */
    if (base == MAP_FAILED)
        return rc < 0 ? rc : -ENOMEM;
    (void)madvise(base, lies->lent_bytes, MADV_DONTDUMP); /* advice: fine without */
    *view = (struct view){.base = base, .n_bytes = lies->lent_bytes, .peer = peer};
    memcpy(view->token, lies->token, LIES_TOKEN_BYTES);
    *ret_view = view;
    return 0;
}

static struct view *
find_view(struct sti_comm *comm, uint32_t peer, const unsigned char *token)
{
    for (uint32_t at = 0; at < VIEWS_MAX; at++) {
        struct view *view = &comm->views[at];

        if (view->base && view->peer == peer && !view->is_gone &&
            memcmp(view->token, token, LIES_TOKEN_BYTES) == 0)
            return view;
    }
    return NULL;
}

int
sti_comm_view(struct sti_comm *comm, struct sti_comm_request *request, const struct lies *lies)
{
    struct view *view = find_view(comm, request->peer, lies->token);

    if (lies->offset > lies->lent_bytes || request->n_bytes > lies->lent_bytes - lies->offset)
        return -EBADMSG;
    if (!view) {
        int rc = open_view(comm, request->peer, lies, &view);

        if (rc < 0)
            return rc;
    }
    if (view->n_bytes != lies->lent_bytes)
        return -EBADMSG;
    view->n_uses++;
    view->used_at = ++comm->n_view_uses;
    request->lies = view->base + lies->offset;
    request->lies_id = lies->id;
    request->view = (uint32_t)(view - comm->views);
    return 0;
}

void
sti_comm_took(struct sti_comm *comm, struct sti_comm_request *request)
{
    struct view *view = &comm->views[request->view];

    request->lies = NULL;
    view->n_uses--;
    if (view->is_gone && view->n_uses == 0)
        close_view(view);
    sti_comm_tell_took(comm, request->peer, request->lies_id);
}

void
sti_comm_end_views(struct sti_comm *comm, uint32_t peer, const unsigned char *token)
{
    for (uint32_t at = 0; comm->views && at < VIEWS_MAX; at++) {
        struct view *view = &comm->views[at];

        if (!view->base || view->peer != peer ||
            (token && memcmp(view->token, token, LIES_TOKEN_BYTES) != 0))
            continue;
        view->is_gone = true;
        if (view->n_uses == 0)
            close_view(view);
    }
}

void
sti_comm_close_views(struct sti_comm *comm)
{
    for (uint32_t at = 0; comm->views && at < VIEWS_MAX; at++)
        if (comm->views[at].base)
            close_view(&comm->views[at]);
}

/* ---- what was taken, told for many at once ---- */

void
sti_comm_tell_took(struct sti_comm *comm, uint32_t peer, uint64_t id)
{
    if (comm->n_tooks == comm->max_tooks)
        sti_comm_run_tooks(comm);
    /* With no room yet, the peer's time runs out for this one. */
    if (comm->n_tooks < comm->max_tooks)
        comm->tooks[comm->n_tooks++] = (struct took){.id = id, .peer = peer};
}

/* Tells the first peer all that it can be told at once; false: not now. */
static bool
tell_first(struct sti_comm *comm)
{
    uint32_t peer = comm->tooks[0].peer, n_ids = 0, n_left = 0;
    unsigned char ids[IDS_MAX * STI_WIRE_ID_BYTES];
    struct sti_wire wire = {.kind = STI_WIRE_TOOK, .small = ids};

    for (uint32_t at = 0; at < comm->n_tooks && n_ids < IDS_MAX; at++)
        if (comm->tooks[at].peer == peer)
            sti_wire_put(ids + STI_WIRE_ID_BYTES * n_ids++, comm->tooks[at].id, STI_WIRE_ID_BYTES);
    wire.n_small = n_ids * STI_WIRE_ID_BYTES;
    /* A peer that is lost has ended its answers itself. */
    if (comm->peers[peer].code == 0 && comm->aborted == 0 && sti_comm_send(comm, peer, &wire) < 0)
        return false;
    for (uint32_t at = 0; at < comm->n_tooks; at++) {
        if (comm->tooks[at].peer == peer && n_ids > 0)
            n_ids--;
        else
            comm->tooks[n_left++] = comm->tooks[at];
    }
    comm->n_tooks = n_left;
    return true;
}

void
sti_comm_run_tooks(struct sti_comm *comm)
{
    while (comm->n_tooks > 0 && tell_first(comm))
        ;
}
