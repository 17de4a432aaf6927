/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpointer. What it owns is made at open and not changed until close. Looking at
 * the directory is done on the caller's thread with an aio of its own; saving is the
 * loop's.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "checkpointer/checkpointer_internal.h"
#include "checkpointer/lists.h"
#include "ckpt/retain.h"
#include "ckpt/scan.h"
#include "engine/memory_limit.h"

#define TRIAL_BLOCK_BYTES 65536u

/* ---- opening
 *
 *
 * -------------------------------------------------------------------------------------- */

/* Names of different sessions must differ. Where the kernel has no random bytes yet, time
 * and process do; and that a name is not used twice is seen to when it is made. */
static uint64_t
new_session(void)
{
    uint64_t session;

    if (getrandom(&session, sizeof(session), GRND_NONBLOCK) == (ssize_t)sizeof(session))
        return session;
    return sti_clock_wall_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid() << 32;
}

static int
open_root(struct sti_checkpointer *checkpointer, uint32_t idx, const char *roots,
          const struct sti_root_open *how, stk_error *err)
{
    struct sti_root *root = &checkpointer->roots[idx];
    const char *word = ".";
    size_t length = idx > 0 ? sti_ckpt_word(roots, idx - 1, &word) : 1;

    root->path = sti_mem_new(length + 1, 1);
    if (!root->path)
        return sti_error_set(err, -ENOMEM, "no memory for a root");
    memcpy(root->path, word, length);
    if (!sti_utf8_is_valid(root->path)) /* JSON could not hold it: nobody would find the parts */
        return sti_error_set_path(err, -EINVAL, root->path,
                                  "the root's name is not UTF-8, as manifests are; use another");
    int rc = sti_root_open(root, idx > 0 ? root->path : checkpointer->directory, how, err);
    if (rc == 0)
        root->budget = sti_engine_budget(checkpointer->engine, root->device);
    return rc;
}

/* Only where parts go has to be writable in parts; the directory takes the manifests. */
static int
open_roots(struct sti_checkpointer *checkpointer, const char *roots, uint64_t session,
           stk_error *err)
{
    const struct sti_ckpt_resolved *resolved = &checkpointer->resolved;
    struct sti_root_open how = {.session = session,
                                .is_buffered = resolved->is_buffered,
                                .is_read_only = resolved->is_read_only};
    int rc;

    checkpointer->roots = sti_mem_new(resolved->n_roots, sizeof(checkpointer->roots[0]));
    how.block = sti_mem_new_aligned(TRIAL_BLOCK_BYTES, TRIAL_BLOCK_BYTES);
    if (!checkpointer->roots || !how.block) {
        sti_mem_free(how.block);
        return sti_error_set(err, -ENOMEM, "no memory for the roots");
    }
    memset(how.block, 0, TRIAL_BLOCK_BYTES);
    for (uint32_t idx = 0; idx < resolved->n_roots; idx++)
        checkpointer->roots[idx].dir_fd = -1;
    rc = sti_engine_aio_open(checkpointer->engine, &how.aio, err);
    for (uint32_t idx = 0; rc == 0 && idx < resolved->n_roots; idx++)
        rc = open_root(checkpointer, idx, roots, &how, err);
    sti_aio_close(how.aio);
    sti_mem_free(how.block);
    return rc;
}

static int
open_saver(struct sti_checkpointer *checkpointer, uint64_t session, stk_error *err)
{
    const struct sti_ckpt_resolved *resolved = &checkpointer->resolved;
    const struct sti_team *team = &checkpointer->team;
    struct sti_loop *loop = sti_engine_loop(checkpointer->engine);
    struct sti_saver_opts opts = {.aio = sti_loop_aio(loop),
                                  .pool = sti_engine_pool(checkpointer->engine),
                                  .roots = checkpointer->roots,
                                  .n_roots = resolved->n_roots,
                                  .first_part_root = resolved->first_part_root,
                                  .slots = resolved->slots,
                                  .slot_bytes = (uint32_t)resolved->slot_bytes,
                                  .chunk_bytes = resolved->chunk_bytes,
                                  .outstanding = resolved->outstanding,
                                  .keep = resolved->keep,
                                  .writer = team->rank,
                                  .world = team->engine ? team->world : 1,
                                  .session = team->engine ? team->session : session,
                                  .vote = team->vote,
                                  .places = team->places,
                                  .is_checked = resolved->is_checked};
    int rc = sti_saver_new(&checkpointer->saver, &opts, err);

    if (rc < 0)
        return rc;
    checkpointer->task = (struct sti_task){.step = sti_saver_step, .context = checkpointer->saver};
    sti_loop_attach(loop, &checkpointer->task);
    return 0;
}

/* What can be found wrong before the other ranks are asked. */
static int
open_alone(struct sti_checkpointer *checkpointer, const char *directory, const stk_ckpt_opts *opts,
           uint64_t session, stk_error *err)
{
    struct sti_ckpt_resolved *resolved = &checkpointer->resolved;
    int rc = sti_ckpt_resolve(resolved, opts, err);

    if (rc < 0)
        return rc;
    resolved->is_buffered |= sti_engine_is_buffered(checkpointer->engine);
    checkpointer->directory = sti_mem_strdup(directory);
    if (!checkpointer->directory)
        return sti_error_set(err, -ENOMEM, "no memory for a checkpointer");
    rc = open_roots(checkpointer, opts->roots, session, err);
    if (rc == 0 && !resolved->is_read_only)
        rc = sti_memory_check(resolved->slots * resolved->slot_bytes, "slots x slot_bytes", err);
    return rc;
}

/* Whether other ranks are asked; also where the options could not be taken. */
static bool
has_team(const struct sti_engine *engine, const stk_ckpt_opts *opts)
{
    struct sti_peers *peers = sti_engine_peers((struct sti_engine *)(uintptr_t)engine);

    return peers && opts->alone != 1 && opts->read_only != 1 &&
           sti_comm_world(sti_peers_comm(peers)) > 1;
}

int
sti_checkpointer_open(struct sti_checkpointer **ret_checkpointer, struct sti_engine *engine,
                      const char *directory, const stk_ckpt_opts *opts, stk_error *err)
{
    struct sti_checkpointer *checkpointer = sti_mem_new(1, sizeof(*checkpointer));
    uint64_t session = new_session();

    if (!checkpointer)
        return sti_error_set(err, -ENOMEM, "no memory for a checkpointer");
    checkpointer->engine = engine;
    int rc = open_alone(checkpointer, directory, opts, session, err);
    if (has_team(engine, opts)) {
        const struct sti_team_opts team = {.engine = engine,
                                           .code = rc,
                                           .session = session,
                                           .chunk_bytes = checkpointer->resolved.chunk_bytes,
                                           .is_checked = checkpointer->resolved.is_checked,
                                           .writers = checkpointer->resolved.writers,
                                           .timeout_ns = checkpointer->resolved.vote_timeout_ns};

        rc = sti_team_join(&checkpointer->team, &team, err);
    }
    if (rc == 0 && !checkpointer->resolved.is_read_only)
        rc = open_saver(checkpointer, session, err);
    if (rc < 0) {
        sti_checkpointer_close(checkpointer);
        return rc;
    }
    *ret_checkpointer = checkpointer;
    return 0;
}

static void
close_roots(struct sti_checkpointer *checkpointer)
{
    for (uint32_t idx = 0; checkpointer->roots && idx < checkpointer->resolved.n_roots; idx++)
        sti_root_close(&checkpointer->roots[idx]);
    sti_mem_free(checkpointer->roots);
}

void
sti_checkpointer_close(struct sti_checkpointer *checkpointer)
{
    if (!checkpointer)
        return;
    if (checkpointer->saver) {
        sti_saver_drain(checkpointer->saver);
        sti_loop_detach(sti_engine_loop(checkpointer->engine), &checkpointer->task);
    }
    sti_saver_free(checkpointer->saver);
    sti_team_leave(&checkpointer->team);
    close_roots(checkpointer);
    sti_mem_free(checkpointer->directory);
    sti_mem_free(checkpointer);
}

/* ---- saving
 *
 *
 * ---------------------------------------------------------------------------------------- */

int
sti_checkpointer_refuse(struct sti_checkpointer *checkpointer, uint64_t step, int code,
                        stk_error *err)
{
    const struct sti_saver_request request = {.step = step, .code = code};

    return checkpointer->saver ? sti_saver_save(checkpointer->saver, &request, err) : code;
}

int
sti_checkpointer_save(struct sti_checkpointer *checkpointer, const stk_save *save,
                      const void *state, size_t n_state, stk_error *err)
{
    const struct sti_team *team = &checkpointer->team;
    struct sti_lists lists = {.rank = team->rank, .world = team->engine ? team->world : 1};

    if (!checkpointer->saver)
        return sti_error_set(err, -EROFS, "the checkpointer was opened with read_only");
    int rc = sti_lists_take(&lists, save, state, n_state, err);
    struct sti_saver_request request = {.step = save->step,
                                        .code = rc,
                                        .groups = lists.groups,
                                        .n_groups = lists.n_groups,
                                        .inputs = lists.inputs,
                                        .tensors = lists.tensors,
                                        .n_tensors = lists.n,
                                        .n_pairs = save->n_metadata,
                                        .pairs = lists.pairs};

    rc = sti_saver_save(checkpointer->saver, &request, err);
    sti_lists_fini(&lists);
    return rc;
}

int
sti_checkpointer_fence(struct sti_checkpointer *checkpointer, stk_error *err)
{
    return checkpointer->saver ? sti_saver_fence(checkpointer->saver, err) : 0;
}

int
sti_checkpointer_fence_tensor(struct sti_checkpointer *checkpointer, uint32_t tensor,
                              stk_error *err)
{
    return checkpointer->saver ? sti_saver_fence_tensor(checkpointer->saver, tensor, err) : 0;
}

int
sti_checkpointer_wait(struct sti_checkpointer *checkpointer, stk_level level, uint64_t timeout_ns,
                      stk_error *err)
{
    if (level != STK_CAPTURED && level != STK_DURABLE_LOCAL)
        return sti_error_set(err, -ENOTSUP, "level %d needs several machines or a shared root",
                             (int)level);
    if (!checkpointer->saver)
        return 0;
    return sti_saver_wait(checkpointer->saver,
                          level == STK_CAPTURED ? STI_LEVEL_CAPTURED : STI_LEVEL_DURABLE,
                          timeout_ns, err);
}

void
sti_checkpointer_status(struct sti_checkpointer *checkpointer, stk_ckpt_status *status)
{
    struct sti_saver_status from = {.last_captured = UINT64_MAX, .last_durable = UINT64_MAX};

    if (checkpointer->saver)
        sti_saver_get_status(checkpointer->saver, &from);
    *status = (stk_ckpt_status){.size = status->size,
                                .saves = from.saves,
                                .durable = from.durable,
                                .failed = from.failed,
                                .last_captured = from.last_captured,
                                .last_durable = from.last_durable,
                                .bytes = from.bytes,
                                .save_wait_ns = from.save_wait_ns,
                                .fence_wait_ns = from.fence_wait_ns,
                                .captured_ns = from.captured_ns,
                                .durable_ns = from.durable_ns,
                                .unfinished = from.unfinished};
}

/* ---- looking at the directory ------------------------------------------------------ */

static int
begin_scan(struct sti_checkpointer *checkpointer, struct sti_scan *scan, stk_error *err)
{
    *scan =
        (struct sti_scan){.dir_fd = checkpointer->roots[0].dir_fd, .path = checkpointer->directory};
    return sti_engine_aio_open(checkpointer->engine, &scan->aio, err);
}

int
sti_checkpointer_latest(struct sti_checkpointer *checkpointer, uint64_t *ret_step, stk_error *err)
{
    struct sti_scan scan;
    struct sti_manifest manifest;
    uint32_t skipped;
    int rc = begin_scan(checkpointer, &scan, err);

    if (rc < 0)
        return rc;
    rc = sti_scan_latest(&scan, &manifest, &skipped, err);
    sti_aio_close(scan.aio);
    if (rc < 0)
        return rc;
    *ret_step = manifest.step;
    sti_manifest_fini(&manifest);
    return (int)(skipped < INT32_MAX ? skipped : INT32_MAX);
}

static void
describe(const struct sti_scan *scan, uint64_t step, stk_ckpt_info *out)
{
    struct sti_manifest manifest;
    int rc = sti_scan_manifest(scan, step, &manifest, NULL);

    *out = (stk_ckpt_info){.step = step, .state = rc};
    if (rc < 0)
        return;
    out->bytes = manifest.layout.stream_bytes;
    out->created_ns = manifest.created_ns;
    out->tensors = manifest.layout.n_tensors;
    out->parts = manifest.n_parts;
    out->world = manifest.world;
    out->state = sti_scan_check_parts(scan, &manifest, NULL);
    sti_manifest_fini(&manifest);
}

int
sti_checkpointer_list(struct sti_checkpointer *checkpointer, stk_ckpt_info *out, uint32_t capacity,
                      uint32_t *ret_total, stk_error *err)
{
    struct sti_scan scan;
    uint64_t *steps;
    uint32_t n;
    int rc = begin_scan(checkpointer, &scan, err);

    if (rc < 0)
        return rc;
    rc = sti_scan_steps(&scan, &steps, &n, err);
    if (rc == 0) {
        uint32_t n_out = n < capacity ? n : capacity;

        for (uint32_t at = 0; at < n_out; at++)
            describe(&scan, steps[at], &out[at]);
        sti_mem_free(steps);
        *ret_total = n;
        rc = (int)(n_out < INT32_MAX ? n_out : INT32_MAX);
    }
    sti_aio_close(scan.aio);
    return rc;
}

static int
prune_old(const struct sti_scan *scan, uint32_t keep, uint32_t *n_removed, stk_error *err)
{
    struct sti_retain *retain = sti_mem_new(1, sizeof(*retain));
    struct sti_aio_op op = {.kind = STI_AIO_LIST};

    if (!retain)
        return sti_error_set(err, -ENOMEM, "no memory to prune");
    *retain = (struct sti_retain){.dir_fd = scan->dir_fd, .keep = keep, .protect_step = UINT64_MAX};
    while (sti_retain_next(retain, &op))
        (void)sti_aio_run(scan->aio, &op); /* the machine looks at the result */
    int rc = retain->result;
    if (rc < 0)
        (void)sti_error_set_path(err, rc, scan->path, "%s cannot be removed: %s", retain->name,
                                 sti_error_text(rc));
    *n_removed += retain->n_removed;
    sti_retain_fini(retain);
    sti_mem_free(retain);
    return rc;
}

static int
prune_orphans(struct sti_checkpointer *checkpointer, const struct sti_scan *scan,
              uint32_t *n_removed, stk_error *err)
{
    uint32_t n_roots = checkpointer->resolved.n_roots;
    const char **roots = sti_mem_new(n_roots, sizeof(*roots));
    uint32_t n = 0;

    if (!roots)
        return sti_error_set(err, -ENOMEM, "no memory to prune");
    for (uint32_t idx = 0; idx < n_roots; idx++)
        roots[idx] = checkpointer->roots[idx].path;
    int rc = sti_scan_remove_orphans(scan, roots, n_roots, &n, err);
    *n_removed += n;
    sti_mem_free(roots);
    return rc;
}

int
sti_checkpointer_prune(struct sti_checkpointer *checkpointer, uint32_t keep, bool orphans,
                       uint32_t *ret_removed, stk_error *err)
{
    struct sti_saver_status status = {0};
    struct sti_scan scan;
    uint32_t n_removed = 0;

    if (!checkpointer->saver)
        return sti_error_set(err, -EROFS, "the checkpointer was opened with read_only");
    if (keep == 0)
        return sti_error_set(err, -EINVAL, "keep 0: at least one checkpoint stays");
    sti_saver_get_status(checkpointer->saver, &status);
    if (status.unfinished > 0)
        return sti_error_set(err, -EBUSY, "a save is under way; wait for it first");
    sti_saver_drain(checkpointer->saver); /* its own removals may still go on */
    int rc = begin_scan(checkpointer, &scan, err);
    if (rc < 0)
        return rc;
    rc = prune_old(&scan, keep, &n_removed, err);
    if (rc == 0 && orphans)
        rc = prune_orphans(checkpointer, &scan, &n_removed, err);
    sti_aio_close(scan.aio);
    if (ret_removed)
        *ret_removed = n_removed;
    return rc;
}
