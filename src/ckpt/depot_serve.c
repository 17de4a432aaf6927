/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answering other nodes. What is asked comes from anybody and is checked; of a file first
 * its size is looked at, then the bytes are read, directly where that is how they were
 * written, as one more of the device's slower users. A bounded number is answered at a
 * time.
 *
 * The loop's thread alone, but for the listing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/mem.h"
#include "budget/budget.h"
#include "ckpt/depot_internal.h"
#include "ckpt/steps.h"

#define ALIGN 4096u
#define PAD_BYTES 65536u /* no device's blocks are larger */
#define NUMBERS_MAX 64u  /* roots of a writer */

struct sti_serve {
    struct sti_depot *depot;
    struct sti_comm_incoming *incoming;
    const struct sti_root *root;
    enum sti_depot_what what;
    uint64_t offset;
    uint32_t n_bytes;
    bool is_promised;
    char path[2 * STI_NAME_SIZE];
    struct statx found;
    char *bytes; /* aligned; room for the size behind them */
    struct sti_steps steps;
    struct sti_aio_op op;
    struct sti_serve *next; /* of those that wait */
};

/* ---- answers -------------------------------------------------------------------- */

static void
release(struct sti_serve *serve)
{
    struct sti_depot *depot = serve->depot;

    sti_mem_free(serve->bytes);
    sti_steps_fini(&serve->steps);
    sti_mem_free(serve);
    depot->n_serving--;
    sti_aio_wake(depot->opts.aio); /* who leaves waits for it */
}

static void
on_sent(void *context, int code)
{
    (void)code; /* who does not get it asks again */
    release(context);
}

static void
refuse(struct sti_serve *serve, int code)
{
    const struct sti_comm_answer answer = {.code = code == -ENOENT ? STI_DEPOT_NO_FILE : code};

    sti_comm_answer(serve->depot->opts.comm, serve->incoming, &answer);
    release(serve);
}

/* n_bytes are in the serve's bytes; what follows them is the file's size. */
static void
give(struct sti_serve *serve, uint32_t n_bytes, uint64_t file_bytes)
{
    sti_depot_put((unsigned char *)serve->bytes + n_bytes, file_bytes, STI_DEPOT_SIZE_BYTES);
    const struct sti_comm_answer answer = {.body = serve->bytes,
                                           .n_bytes = (uint64_t)n_bytes + STI_DEPOT_SIZE_BYTES,
                                           .done = on_sent,
                                           .context = serve};

    sti_comm_answer(serve->depot->opts.comm, serve->incoming, &answer);
}

/* ---- files ---------------------------------------------------------------------- */

static void
on_read(struct sti_aio_op *op)
{
    struct sti_serve *serve = op->context;

    if (serve->root->budget)
        sti_budget_done(serve->root->budget, STI_BUDGET_DRAIN);
    if (op->result < 0)
        refuse(serve, op->result);
    else
        give(serve, (uint32_t)op->result < serve->n_bytes ? (uint32_t)op->result : serve->n_bytes,
             serve->found.stx_size);
}

static void
start_reading(struct sti_serve *serve)
{
    const struct sti_dio *dio = &serve->root->dio;
    bool is_direct =
        serve->what == STI_DEPOT_PART && dio->is_direct && serve->offset % dio->block_bytes == 0;
    uint32_t block_bytes = is_direct ? dio->block_bytes : 1;

    serve->op = (struct sti_aio_op){.kind = STI_AIO_READ_FILE,
                                    .dir_fd = serve->root->dir_fd,
                                    .path = serve->path,
                                    .open_flags = is_direct ? O_DIRECT : 0,
                                    .bytes = serve->bytes,
                                    .n_bytes = (serve->n_bytes + block_bytes - 1) / block_bytes *
                                               block_bytes,
                                    .offset = serve->offset,
                                    .done = on_read,
                                    .context = serve,
                                    .is_shaped = true};
    sti_aio_submit(serve->depot->opts.aio, &serve->op);
}

/* Whether the device has room for one more read; ret_due_ns: when to ask again. */
static bool
may_read(struct sti_serve *serve, uint64_t now_ns, uint64_t *ret_due_ns)
{
    struct sti_budget *budget = serve->root->budget;
    uint64_t wait_ns = budget ? sti_budget_ask(budget, STI_BUDGET_DRAIN, now_ns) : 0;

    if (wait_ns > 0 && now_ns + wait_ns < *ret_due_ns)
        *ret_due_ns = now_ns + wait_ns;
    return wait_ns == 0;
}

uint64_t
sti_serves_step(struct sti_depot *depot, uint64_t now_ns)
{
    struct sti_serve **at = &depot->waiting;
    uint64_t due_ns = UINT64_MAX;

    while (*at) {
        struct sti_serve *serve = *at;

        if (!may_read(serve, now_ns, &due_ns)) {
            if (!serve->is_promised)
                sti_comm_promise(depot->opts.comm, serve->incoming); /* it may take long */
            serve->is_promised = true;
            at = &serve->next;
            continue;
        }
        *at = serve->next;
        start_reading(serve);
    }
    return due_ns;
}

void
sti_serves_leave(struct sti_depot *depot)
{
    while (depot->waiting) {
        struct sti_serve *serve = depot->waiting;

        depot->waiting = serve->next;
        refuse(serve, -ESTALE);
    }
}

static void
on_looked(struct sti_aio_op *op)
{
    struct sti_serve *serve = op->context;
    struct sti_depot *depot = serve->depot;
    uint64_t file_bytes = serve->found.stx_size;

    if (op->result < 0 || !S_ISREG(serve->found.stx_mode)) {
        refuse(serve, op->result < 0 ? op->result : -EINVAL);
        return;
    }
    if (serve->offset > file_bytes || serve->n_bytes == 0) {
        serve->n_bytes = 0;
        give(serve, 0, file_bytes);
        return;
    }
    if (depot->is_leaving) {
        refuse(serve, -ESTALE);
        return;
    }
    if (serve->n_bytes > file_bytes - serve->offset)
        serve->n_bytes = (uint32_t)(file_bytes - serve->offset);
    serve->next = depot->waiting;
    depot->waiting = serve;
    sti_aio_wake(depot->opts.aio); /* the step begins it */
}

static void
look(struct sti_serve *serve)
{
    serve->op = (struct sti_aio_op){.kind = STI_AIO_STATX,
                                    .dir_fd = serve->root->dir_fd,
                                    .path = serve->path,
                                    .statx_mask = STATX_SIZE | STATX_TYPE,
                                    .statx = &serve->found,
                                    .done = on_looked,
                                    .context = serve};
    sti_aio_submit(serve->depot->opts.aio, &serve->op);
}

/* ---- the list of steps ---------------------------------------------------------- */

static void
on_listed(struct sti_aio_op *op)
{
    struct sti_serve *serve = op->context;
    uint32_t n = serve->n_bytes / 8;

    if (op->result < 0) {
        refuse(serve, op->result);
        return;
    }
    sti_steps_sort(&serve->steps);
    n = n < serve->steps.n ? n : serve->steps.n;
    for (uint32_t at = 0; at < n; at++)
        sti_depot_put((unsigned char *)serve->bytes + (size_t)at * 8, serve->steps.list[at], 8);
    give(serve, n * 8, (uint64_t)serve->steps.n * 8);
}

static void
list(struct sti_serve *serve)
{
    serve->op = (struct sti_aio_op){.kind = STI_AIO_LIST,
                                    .dir_fd = serve->root->dir_fd,
                                    .path = ".",
                                    .list_fn = sti_steps_note,
                                    .list_context = &serve->steps,
                                    .done = on_listed,
                                    .context = serve};
    sti_aio_submit(serve->depot->opts.aio, &serve->op);
}

/* ---- what is asked -------------------------------------------------------------- */

/* One of this node's roots, by its name as manifests have it; NULL: it is none. */
static const struct sti_root *
find_root(const struct sti_depot *depot, const char *name, size_t length)
{
    for (uint32_t at = 0; at < depot->opts.n_roots; at++) {
        const char *path = depot->opts.roots[at].path;

        if (path && strlen(path) == length && memcmp(path, name, length) == 0)
            return &depot->opts.roots[at];
    }
    return NULL;
}

/* Makes the path of what is asked. Errors: -EINVAL. */
static int
take_path(struct sti_serve *serve, const unsigned char *small, uint32_t n_small)
{
    uint64_t step = sti_depot_get(small + 8, 8);
    uint32_t writer = (uint32_t)sti_depot_get(small + 24, 4);
    uint32_t number = (uint32_t)sti_depot_get(small + 28, 4);
    bool has_one_part = sti_depot_get(small + 32, 4) != 0;
    char dir[STI_NAME_SIZE];
    char file[STI_NAME_SIZE];
    char id[STI_ID_SIZE];

    if (serve->what == STI_DEPOT_PART) {
        memcpy(id, small + 40, sizeof(id));
        serve->root = find_root(serve->depot, (const char *)small + STI_DEPOT_HEAD_BYTES,
                                n_small - STI_DEPOT_HEAD_BYTES);
        if (!serve->root || id[STI_ID_SIZE - 1] != '\0' || !sti_name_is_id(id) ||
            number >= NUMBERS_MAX || step > INT64_MAX)
            return -EINVAL;
        sti_name_make(dir, STI_NAME_PARTS, step, id);
        sti_name_part(file, writer, number, has_one_part ? 1 : 2);
    } else {
        sti_name_make(dir, STI_NAME_STEP, step, "");
        (void)snprintf(file, sizeof(file), "%s", STI_MANIFEST_NAME); /* fits */
    }
    (void)snprintf(serve->path, sizeof(serve->path), "%s/%s", dir, file); /* fits */
    return 0;
}

static int
take(struct sti_serve *serve, const struct sti_comm_incoming *incoming)
{
    const unsigned char *small = incoming->small;
    struct sti_depot *depot = serve->depot;

    if (incoming->n_small < STI_DEPOT_HEAD_BYTES ||
        sti_depot_get(small + 36, 4) != incoming->n_small - STI_DEPOT_HEAD_BYTES)
        return -EINVAL;
    uint64_t what = sti_depot_get(small, 4);
    serve->n_bytes = (uint32_t)sti_depot_get(small + 4, 4);
    serve->offset = sti_depot_get(small + 16, 8);
    if (what < STI_DEPOT_STEPS || what > STI_DEPOT_PART || serve->offset > INT64_MAX ||
        serve->n_bytes > depot->opts.most_bytes ||
        (uint64_t)serve->n_bytes + STI_DEPOT_SIZE_BYTES > incoming->room_bytes)
        return -EINVAL;
    if (depot->opts.n_roots == 0)
        return -ENOENT;
    serve->what = (enum sti_depot_what)what;
    serve->root = &depot->opts.roots[0];
    int rc = take_path(serve, small, incoming->n_small);
    if (rc < 0)
        return rc;
    serve->bytes = sti_mem_new_aligned((uint64_t)serve->n_bytes + PAD_BYTES, ALIGN);
    return serve->bytes ? 0 : -EAGAIN;
}

void
sti_depot_on_request(void *context, struct sti_comm_incoming *incoming)
{
    struct sti_depot *depot = context;
    struct sti_serve *serve = NULL;
    int rc = depot->is_leaving ? -ESTALE : -EAGAIN;

    if (!depot->is_leaving && depot->n_serving < STI_DEPOT_SERVES_MAX)
        serve = sti_mem_new(1, sizeof(*serve));
    if (!serve) {
        const struct sti_comm_answer answer = {.code = rc};

        sti_comm_answer(depot->opts.comm, incoming, &answer);
        return;
    }
    serve->depot = depot;
    serve->incoming = incoming;
    depot->n_serving++;
    rc = take(serve, incoming);
    if (rc < 0)
        refuse(serve, rc);
    else if (serve->what == STI_DEPOT_STEPS)
        list(serve);
    else
        look(serve);
}
