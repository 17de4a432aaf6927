/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine. What it owns is made at open and not changed until close, but for the free
 * part of the tiers, which loaders take and return under the lock (STI_RANK_ENGINE), and
 * for what a job on the pool finds out about them. Invariant: the parts taken never
 * exceed the tier.
 */
#include "engine/engine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/thread.h"
#include "budget/budget.h"
#include "engine/memory_limit.h"
#include "engine/probe.h"
#include "io/shape.h"
#include "model/hierarchy.h"
#include "policy/shares.h"

#define DEFAULT_IO_THREADS 32
#define DEFAULT_OPEN_FILES 256
#define PROBE_BYTES (UINT64_C(8) << 20)
#define PROBE_ONE_BYTES (UINT64_C(1) << 20)
#define DEVICES_MAX 64
#define PROBE_WAIT_NS (UINT64_C(2) * STI_NS_PER_S)
#define PART_TEXT_SIZE 80
#define URING_IO_THREADS 4 /* for the operations that have no entry of their own */

struct arbiter {
    uint64_t device;
    struct sti_budget budget;
};

struct sti_engine {
    struct sti_pool *pool;
    struct sti_loop *loop;
    struct sti_peers *peers;        /* or NULL */
    struct sti_hierarchy hierarchy; /* this rank's part of the tiers */
    struct sti_hierarchy whole;     /* the tiers as they were given */
    struct sti_node_part node;
    uint32_t queue_depth;
    uint32_t max_open_files; /* one half for single reads, one for files held open */
    bool is_buffered;
    uint64_t allocations_at_open;
    char *cache_dir;
    char *shape; /* of the emulated device; NULL: none */
    struct sti_mutex lock;
    bool is_unarbitrated;
    uint32_t n_arbiters STI_GUARDED_BY(&lock);
    struct arbiter
        arbiters[DEVICES_MAX]; /* which there are, under the lock; the rest, the loop's */
    uint64_t ram_taken_bytes STI_GUARDED_BY(&lock);
    uint32_t files_taken STI_GUARDED_BY(&lock);
    uint64_t ssd_taken_bytes[STI_SSDS_MAX] STI_GUARDED_BY(&lock);

    /* The probe: RAM and the SSD directories, once. */
    struct sti_job probe_job;
    struct sti_cond probed;
    bool is_probed STI_GUARDED_BY(&lock);
    struct sti_cost_point ram_cost STI_GUARDED_BY(&lock); /* depth 0: not known */
    struct sti_cost_point ssd_costs[STI_SSDS_MAX] STI_GUARDED_BY(&lock);
};

/* On the pool: what the tiers are like. A directory that cannot be measured stays
 * unknown; the loader that uses it says why. */
static void
probe(struct sti_job *job)
{
    struct sti_engine *engine =
        (struct sti_engine *)(void *)((char *)job - offsetof(struct sti_engine, probe_job));
    struct sti_cost_point ram = {0};
    struct sti_cost_point ssds[STI_SSDS_MAX] = {{0}};
    /* Several are divided by their speeds; one is learned of soon enough. */
    uint64_t n_bytes = engine->hierarchy.n_ssds > 1 ? PROBE_BYTES : PROBE_ONE_BYTES;

    if (sti_probe_memory(&ram) < 0)
        ram.depth = 0;
    for (uint32_t at = 0; at < engine->hierarchy.n_ssds; at++)
        if (sti_probe_briefly(engine->hierarchy.ssds[at].path, n_bytes, &ssds[at]) < 0)
            ssds[at].depth = 0;
    sti_mutex_lock(&engine->lock);
    engine->ram_cost = ram;
    memcpy(engine->ssd_costs, ssds, sizeof(ssds));
    engine->is_probed = true;
    sti_cond_broadcast(&engine->probed);
    sti_mutex_unlock(&engine->lock);
}

static uint32_t
processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > 256 ? 256 : (uint32_t)n;
}

static int
check_range(const char *name, uint32_t value, uint32_t least, uint32_t most, stk_error *err)
{
    if (value != 0 && (value < least || value > most))
        return sti_error_set(err, -EINVAL, "%s %" PRIu32 " is not in %" PRIu32 " .. %" PRIu32, name,
                             value, least, most);
    return 0;
}

static int
check_opts(const stk_engine_opts *opts, stk_error *err)
{
    int rc = check_range("workers", opts->workers, 1, 256, err);

    if (rc == 0)
        rc = check_range("queue_depth", opts->queue_depth, 1, 1024, err);
    if (rc == 0)
        rc = check_range("io_threads", opts->io_threads, 1, 256, err);
    if (rc == 0)
        rc = check_range("max_open_files", opts->max_open_files, 4, 65536, err);
    if (rc == 0 && opts->buffered > 1)
        rc = sti_error_set(err, -EINVAL, "buffered %" PRIu32 " is not 0 or 1", opts->buffered);
    if (rc == 0 && opts->unarbitrated > 1)
        rc = sti_error_set(err, -EINVAL, "unarbitrated %" PRIu32 " is not 0 or 1",
                           opts->unarbitrated);
    return rc;
}

/* Half of what the process may open is left to the program. */
static int
resolve_open_files(uint32_t wanted, uint32_t *ret_files, stk_error *err)
{
    struct rlimit limit;
    uint64_t most = DEFAULT_OPEN_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        most = limit.rlim_cur / 2;
    if (wanted > most)
        return sti_error_set(err, -EINVAL,
                             "max_open_files %" PRIu32
                             " is more than half of RLIMIT_NOFILE, %" PRIu64
                             "; raise the limit (ulimit -n)",
                             wanted, most);
    if (wanted == 0)
        wanted = most < DEFAULT_OPEN_FILES ? (uint32_t)most : DEFAULT_OPEN_FILES;
    if (wanted < 4)
        return sti_error_set(err, -EMFILE, "RLIMIT_NOFILE is too low: 8 is the least");
    *ret_files = wanted;
    return 0;
}

static int
emulate(struct sti_shape **ret_shape, const char *text, stk_error *err)
{
    return text && text[0] != '\0' ? sti_shape_new(ret_shape, text, err) : 0;
}

static int
open_loop(struct sti_engine *engine, const stk_engine_opts *opts, stk_error *err)
{
    struct sti_aio_opts aio_opts = {.method = opts->io_method,
                                    .pool = engine->pool,
                                    .queue_depth = engine->queue_depth,
                                    .max_open_files = engine->max_open_files / 2};

    int rc = emulate(&aio_opts.shape, opts->shape, err);

    if (rc == 0)
        rc = emulate(&aio_opts.ssd_shape, opts->ssd_shape, err);
    if (rc < 0) {
        sti_shape_free(aio_opts.shape);
        return rc;
    }
    return sti_loop_open(&engine->loop, &aio_opts, err);
}

/* The tiers are the machine's: this rank has its part of them. */
static int
divide_tiers(struct sti_engine *engine, const stk_comm_opts *opts, stk_error *err)
{
    struct sti_hierarchy *part = &engine->hierarchy;
    struct sti_hierarchy divided = *part;
    struct sti_node_part *node = &engine->node;

    sti_peers_node(engine->peers, &node->at, &node->n);
    node->is_apart = opts->tiers_per_rank == 1;
    /* Also of ranks that have tiers of their own: caches of one directory have slots. */
    int rc = sti_hierarchy_divide(&divided, node->n, err);
    if (rc == 0 && !node->is_apart)
        *part = divided;
    return rc;
}

static int
open_parts(struct sti_engine *engine, const stk_engine_opts *opts, stk_error *err)
{
    /* Threads for blocking calls cost nothing while they sleep, so they are there
     * whatever method "auto" turns out to be. */
    uint32_t io_threads = opts->io_threads ? opts->io_threads : DEFAULT_IO_THREADS;
    uint32_t workers = opts->workers ? opts->workers : processors();

    if (opts->io_method && strcmp(opts->io_method, "uring") == 0 && io_threads > URING_IO_THREADS)
        io_threads = URING_IO_THREADS;
    engine->queue_depth = opts->queue_depth ? opts->queue_depth : STK_QUEUE_DEPTH;
    engine->is_buffered = opts->buffered == 1;
    engine->is_unarbitrated = opts->unarbitrated == 1;
    engine->cache_dir = opts->cache_dir ? sti_mem_strdup(opts->cache_dir) : NULL;
    engine->shape = opts->shape && opts->shape[0] ? sti_mem_strdup(opts->shape) : NULL;
    if ((opts->shape && opts->shape[0] && !engine->shape) ||
        (opts->cache_dir && !engine->cache_dir))
        return sti_error_set(err, -ENOMEM, "no memory for the engine");
    int rc = sti_pool_open(&engine->pool, workers, io_threads);
    if (rc < 0)
        return sti_error_set(err, rc, "workers: no thread can be started: %s", sti_error_text(rc));
    rc = open_loop(engine, opts, err);
    if (rc == 0 && opts->comm)
        rc = sti_peers_open(&engine->peers, engine->loop, opts->comm, err);
    return rc == 0 && opts->comm ? divide_tiers(engine, opts->comm, err) : rc;
}

int
sti_engine_open(struct sti_engine **ret_engine, const stk_engine_opts *opts, stk_error *err)
{
    struct sti_engine *engine = sti_mem_new(1, sizeof(*engine));
    int rc;

    if (!engine)
        return sti_error_set(err, -ENOMEM, "no memory for the engine");
    engine->allocations_at_open = sti_mem_count();
    rc = check_opts(opts, err);
    if (rc == 0)
        rc = sti_hierarchy_parse(&engine->hierarchy, opts->tiers, err);
    engine->whole = engine->hierarchy;
    engine->node = (struct sti_node_part){.n = 1};
    if (rc == 0)
        rc = sti_memory_check(engine->hierarchy.ram_bytes, "tiers: ram", err);
    if (rc == 0)
        rc = resolve_open_files(opts->max_open_files, &engine->max_open_files, err);
    if (rc < 0)
        goto err_free;
    rc = sti_mutex_init(&engine->lock, STI_RANK_ENGINE);
    if (rc < 0) {
        (void)sti_error_set(err, rc, "no mutex: %s", sti_error_text(rc));
        goto err_free;
    }
    rc = sti_cond_init(&engine->probed);
    if (rc < 0) {
        sti_mutex_fini(&engine->lock);
        (void)sti_error_set(err, rc, "no condition: %s", sti_error_text(rc));
        goto err_free;
    }
    rc = open_parts(engine, opts, err);
    if (rc < 0) {
        sti_engine_close(engine);
        return rc;
    }
    if (engine->hierarchy.n_ssds > 0) {
        engine->probe_job.fn = probe;
        sti_pool_submit(engine->pool, STI_LANE_BACKGROUND, &engine->probe_job, 1);
    }
    *ret_engine = engine;
    return 0;

err_free:
    sti_mem_free(engine);
    return rc;
}

void
sti_engine_close(struct sti_engine *engine)
{
    if (!engine)
        return;
    sti_mutex_lock(&engine->lock);
    assert(engine->ram_taken_bytes == 0 && "loaders are closed before their engine");
    sti_mutex_unlock(&engine->lock);
    sti_peers_close(engine->peers);
    /* The pool first: its last jobs may still wake the loop, which has nothing under
     * way. */
    sti_pool_close(engine->pool);
    sti_loop_close(engine->loop);
    sti_cond_fini(&engine->probed);
    sti_mutex_fini(&engine->lock);
    sti_mem_free(engine->cache_dir);
    sti_mem_free(engine->shape);
    sti_mem_free(engine);
}

struct sti_loop *
sti_engine_loop(struct sti_engine *engine)
{
    return engine->loop;
}

struct sti_peers *
sti_engine_peers(struct sti_engine *engine)
{
    return engine->peers;
}

struct sti_pool *
sti_engine_pool(struct sti_engine *engine)
{
    return engine->pool;
}

uint32_t
sti_engine_queue_depth(const struct sti_engine *engine)
{
    return engine->queue_depth;
}

bool
sti_engine_is_buffered(const struct sti_engine *engine)
{
    return engine->is_buffered;
}

const char *
sti_engine_method_name(const struct sti_engine *engine)
{
    return sti_aio_method_name(sti_loop_aio(engine->loop));
}

const char *
sti_engine_cache_dir(const struct sti_engine *engine)
{
    return engine->cache_dir;
}

struct sti_node_part
sti_engine_node(const struct sti_engine *engine)
{
    return engine->node;
}

/* For errors: that a tier is a part of what was given. text: PART_TEXT_SIZE. */
static const char *
part_text(const struct sti_engine *engine, char *text)
{
    text[0] = '\0';
    if (engine->node.n > 1 && !engine->node.is_apart)
        (void)snprintf(text, PART_TEXT_SIZE,
                       "; the tiers are the machine's, and %" PRIu32 " ranks share them",
                       engine->node.n);
    return text;
}

int
sti_engine_take_ram(struct sti_engine *engine, uint64_t want_bytes, uint64_t least_bytes,
                    uint64_t *ret_bytes, stk_error *err)
{
    char text[PART_TEXT_SIZE];

    sti_mutex_lock(&engine->lock);
    uint64_t free_bytes = engine->hierarchy.ram_bytes - engine->ram_taken_bytes;
    uint64_t taken_bytes = want_bytes < free_bytes ? want_bytes : free_bytes;
    if (taken_bytes >= least_bytes)
        engine->ram_taken_bytes += taken_bytes;
    sti_mutex_unlock(&engine->lock);
    if (taken_bytes < least_bytes)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "ram_bytes %" PRIu64 " is more than the %" PRIu64
                             " of the RAM tier's %" PRIu64 " bytes that other loaders leave%s",
                             least_bytes, free_bytes, engine->hierarchy.ram_bytes,
                             part_text(engine, text));
    *ret_bytes = taken_bytes;
    return 0;
}

void
sti_engine_return_ram(struct sti_engine *engine, uint64_t n_bytes)
{
    sti_mutex_lock(&engine->lock);
    assert(engine->ram_taken_bytes >= n_bytes);
    engine->ram_taken_bytes -= n_bytes;
    sti_mutex_unlock(&engine->lock);
}

struct sti_budget *
sti_engine_budget(struct sti_engine *engine, uint64_t device)
{
    struct sti_budget *budget = NULL;

    sti_mutex_lock(&engine->lock);
    for (uint32_t at = 0; at < engine->n_arbiters; at++)
        if (engine->arbiters[at].device == device)
            budget = &engine->arbiters[at].budget;
    if (!budget && engine->n_arbiters < DEVICES_MAX) {
        struct arbiter *arbiter = &engine->arbiters[engine->n_arbiters++];

        arbiter->device = device;
        budget = &arbiter->budget;
        sti_budget_init(budget, engine->is_unarbitrated);
    }
    sti_mutex_unlock(&engine->lock);
    return budget;
}

uint32_t
sti_engine_take_files(struct sti_engine *engine, uint32_t want)
{
    sti_mutex_lock(&engine->lock);
    uint32_t n_free = engine->max_open_files - engine->max_open_files / 2 - engine->files_taken;
    /* Who wants all that there are leaves something to the next one. */
    uint32_t n_files = want < n_free ? want : n_free / 2;
    engine->files_taken += n_files;
    sti_mutex_unlock(&engine->lock);
    return n_files;
}

void
sti_engine_return_files(struct sti_engine *engine, uint32_t n_files)
{
    sti_mutex_lock(&engine->lock);
    assert(engine->files_taken >= n_files);
    engine->files_taken -= n_files;
    sti_mutex_unlock(&engine->lock);
}

uint32_t
sti_engine_ssds(const struct sti_engine *engine)
{
    return engine->hierarchy.n_ssds;
}

const struct sti_ssd_config *
sti_engine_ssd(const struct sti_engine *engine, uint32_t at)
{
    return &engine->hierarchy.ssds[at];
}

uint64_t
sti_engine_ssd_whole_bytes(const struct sti_engine *engine, uint32_t at)
{
    return engine->whole.ssds[at].n_bytes;
}

/* A directory that is not there keeps nothing; its part would be lost. */
static bool
is_there(const char *path)
{
    struct statx found;
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .statx_mask = STATX_TYPE,
                            .statx = &found};

    sti_aio_op_execute(&op);
    return op.result >= 0;
}

int
sti_engine_take_ssds(struct sti_engine *engine, uint64_t want_bytes, uint64_t least_bytes,
                     uint64_t *ret_bytes, stk_error *err)
{
    struct sti_share shares[STI_SSDS_MAX] = {{0}};
    uint32_t n = engine->hierarchy.n_ssds;
    uint64_t room_bytes = 0;
    bool there[STI_SSDS_MAX];
    char text[PART_TEXT_SIZE];

    for (uint32_t at = 0; at < n; at++)
        there[at] = is_there(engine->hierarchy.ssds[at].path);
    sti_mutex_lock(&engine->lock);
    /* Several are divided by their speeds, so these have to be known; if not soon, by
     * halves. */
    uint64_t deadline_ns = sti_clock_ns() + PROBE_WAIT_NS;
    while (n > 1 && !engine->is_probed &&
           sti_cond_wait_until(&engine->probed, &engine->lock, deadline_ns) == 0)
        ;
    for (uint32_t at = 0; at < n; at++) {
        shares[at].weight = engine->ssd_costs[at].bytes_per_s;
        shares[at].room_bytes = engine->hierarchy.ssds[at].n_bytes - engine->ssd_taken_bytes[at];
        room_bytes += shares[at].room_bytes;
        if (!there[at])
            shares[at].room_bytes = 0;
    }
    if (room_bytes >= least_bytes) {
        sti_shares_divide(shares, n, want_bytes);
        for (uint32_t at = 0; at < n; at++)
            engine->ssd_taken_bytes[at] += shares[at].share_bytes;
    }
    sti_mutex_unlock(&engine->lock);
    if (room_bytes < least_bytes)
        return sti_error_set(err, STK_E_INFEASIBLE,
                             "ssd_bytes %" PRIu64 " is more than the %" PRIu64
                             " bytes of the SSD tiers that other loaders leave%s",
                             least_bytes, room_bytes, part_text(engine, text));
    for (uint32_t at = 0; at < STI_SSDS_MAX; at++)
        ret_bytes[at] = shares[at].share_bytes;
    return 0;
}

void
sti_engine_return_ssds(struct sti_engine *engine, const uint64_t *n_bytes)
{
    sti_mutex_lock(&engine->lock);
    for (uint32_t at = 0; at < engine->hierarchy.n_ssds; at++) {
        assert(engine->ssd_taken_bytes[at] >= n_bytes[at]);
        engine->ssd_taken_bytes[at] -= n_bytes[at];
    }
    sti_mutex_unlock(&engine->lock);
}

struct sti_cost_curve
sti_engine_cost(struct sti_engine *engine, stk_tier tier)
{
    struct sti_cost_curve curve = {0};
    struct sti_cost_point ssds = {0};

    sti_mutex_lock(&engine->lock);
    for (uint32_t at = 0; at < engine->hierarchy.n_ssds; at++) {
        const struct sti_cost_point *one = &engine->ssd_costs[at];

        ssds.depth += one->depth;
        ssds.bytes_per_s += one->bytes_per_s;
        ssds.latency_s = one->latency_s > ssds.latency_s ? one->latency_s : ssds.latency_s;
    }
    if (tier == STK_TIER_RAM)
        sti_cost_curve_add(&curve, &engine->ram_cost);
    else if (tier == STK_TIER_SSD)
        sti_cost_curve_add(&curve, &ssds);
    sti_mutex_unlock(&engine->lock);
    return curve;
}

int
sti_engine_aio_open(struct sti_engine *engine, struct sti_aio **ret_aio, stk_error *err)
{
    struct sti_aio_opts opts = {.method = sti_engine_method_name(engine),
                                .pool = engine->pool,
                                .queue_depth = engine->queue_depth,
                                .max_open_files = engine->max_open_files / 2};

    if (engine->shape) {
        int rc = sti_shape_new(&opts.shape, engine->shape, err);

        if (rc < 0)
            return rc;
    }
    int rc = sti_aio_open(ret_aio, &opts, err);
    if (rc < 0)
        sti_shape_free(opts.shape);
    return rc;
}

void
sti_engine_stats(struct sti_engine *engine, stk_engine_stats *stats)
{
    struct sti_aio_stats aio_stats;

    sti_aio_get_stats(sti_loop_aio(engine->loop), &aio_stats);
    stats->reads = aio_stats.reads;
    stats->read_bytes = aio_stats.read_bytes;
    stats->submit_calls = aio_stats.submit_calls;
    stats->loop_wakeups = aio_stats.waits;
    stats->io_errors = aio_stats.errors;
    stats->allocations = sti_mem_count() - engine->allocations_at_open;
    stats->node_rank = engine->node.at;
    stats->node_ranks = engine->node.n;
    stats->ram_bytes = engine->hierarchy.ram_bytes;
    for (uint32_t at = 0; at < engine->hierarchy.n_ssds; at++)
        stats->ssd_bytes += engine->hierarchy.ssds[at].n_bytes;
    stats->mapped_bytes = sti_peers_mapped_bytes(engine->peers);
}
