/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at the directories, on the caller's thread with an aio of its own: which checkpoints
 * there are, and removing old ones. The shared directory is looked at behind the own one.
 */
#include <errno.h>

#include "base/error.h"
#include "base/mem.h"
#include "checkpointer/checkpointer_internal.h"
#include "ckpt/parts.h"
#include "ckpt/retain.h"

int
sti_checkpointer_scans(struct sti_checkpointer *checkpointer, struct sti_scan scans[2],
                       stk_error *err)
{
    struct sti_aio *aio;
    int rc = sti_engine_aio_open(checkpointer->engine, &aio, err);

    if (rc < 0)
        return rc;
    scans[0] = (struct sti_scan){
        .aio = aio, .dir_fd = checkpointer->roots[0].dir_fd, .path = checkpointer->directory};
    if (checkpointer->resolved.is_of_node && checkpointer->team.nodes.n > 0)
        scans[0].nodes = &checkpointer->team.nodes;
    if (!checkpointer->shared_directory)
        return 1;
    scans[1] = (struct sti_scan){
        .aio = aio, .dir_fd = checkpointer->shared.dir_fd, .path = checkpointer->shared_directory};
    return 2;
}

int
sti_checkpointer_find_latest(const struct sti_scan *scans, int n_scans,
                             struct sti_manifest *manifest, const struct sti_scan **ret_scan,
                             stk_error *err)
{
    struct sti_manifest other;
    stk_error why;
    uint32_t skipped;
    uint32_t other_skipped;
    int rc = sti_scan_latest(&scans[0], manifest, &skipped, err);

    *ret_scan = &scans[0];
    if (n_scans > 1) {
        int other_rc = sti_scan_latest(&scans[1], &other, &other_skipped, &why);

        if (other_rc == 0 && (rc < 0 || other.step > manifest->step)) {
            if (rc == 0)
                sti_manifest_fini(manifest);
            /* What is wrong with newer ones of the own directory is told where there are any. */
            bool is_told = rc != -ENOENT && (rc < 0 || skipped > 0);
            skipped = is_told && rc == 0 ? skipped : other_skipped + (rc < 0 && rc != -ENOENT);
            if (err && !is_told)
                *err = why;
            *manifest = other;
            *ret_scan = &scans[1];
            rc = 0;
        } else if (other_rc == 0) {
            sti_manifest_fini(&other);
        } else if (rc == -ENOENT && other_rc != -ENOENT) {
            if (err)
                *err = why;
            rc = other_rc;
        }
    }
    if (rc < 0)
        return rc;
    return (int)(skipped < INT32_MAX ? skipped : INT32_MAX);
}

int
sti_checkpointer_latest(struct sti_checkpointer *checkpointer, uint64_t *ret_step, stk_error *err)
{
    struct sti_scan scans[2];
    const struct sti_scan *scan;
    struct sti_manifest manifest;
    int n_scans = sti_checkpointer_scans(checkpointer, scans, err);

    if (n_scans < 0)
        return n_scans;
    int rc = sti_checkpointer_find_latest(scans, n_scans, &manifest, &scan, err);
    sti_aio_close(scans[0].aio);
    if (rc < 0)
        return rc;
    *ret_step = manifest.step;
    sti_manifest_fini(&manifest);
    return rc;
}

static void
describe(const struct sti_scan *scan, uint64_t step, stk_ckpt_info *out)
{
    struct sti_manifest manifest;
    int state = sti_scan_whole(scan, step, &manifest, NULL);

    *out = (stk_ckpt_info){.step = step, .state = state};
    if (state < 0 && sti_scan_manifest(scan, step, &manifest, NULL) < 0)
        return;
    out->bytes = manifest.layout.stream_bytes;
    out->created_ns = manifest.created_ns;
    out->tensors = manifest.layout.n_tensors;
    out->parts = manifest.n_parts;
    out->world = manifest.world;
    sti_manifest_fini(&manifest);
}

/* The better of what the directories have of a step. */
static void
describe_best(const struct sti_scan *scans, int n_scans, uint64_t step, stk_ckpt_info *out)
{
    stk_ckpt_info other;

    describe(&scans[0], step, out);
    if (n_scans == 1 || out->state == 0)
        return;
    describe(&scans[1], step, &other);
    if (other.state == 0 || out->state == -ENOENT)
        *out = other;
}

int
sti_checkpointer_list(struct sti_checkpointer *checkpointer, stk_ckpt_info *out, uint32_t capacity,
                      uint32_t *ret_total, stk_error *err)
{
    struct sti_scan scans[2];
    struct sti_steps steps = {0};
    int rc = 0;
    int n_scans = sti_checkpointer_scans(checkpointer, scans, err);

    if (n_scans < 0)
        return n_scans;
    for (int at = 0; rc == 0 && at < n_scans; at++)
        rc = sti_scan_steps(&scans[at], &steps, err);
    if (rc == 0) {
        uint32_t n_out = steps.n < capacity ? steps.n : capacity;

        for (uint32_t at = 0; at < n_out; at++)
            describe_best(scans, n_scans, steps.list[at], &out[at]);
        *ret_total = steps.n;
        rc = (int)(n_out < INT32_MAX ? n_out : INT32_MAX);
    }
    sti_steps_fini(&steps);
    sti_aio_close(scans[0].aio);
    return rc;
}

/* Looks at one part; with a reader reads it, too. */
static stk_ckpt_part
look_at_part(const struct sti_scan *scan, struct sti_reader *reader,
             const struct sti_manifest *manifest, uint32_t idx, stk_error *err)
{
    const struct sti_part *part = &manifest->parts[idx];
    bool is_coming = false;
    int state = sti_part_look(scan, manifest, idx, &is_coming, err);

    if (state == 0 && reader)
        state = sti_reader_verify_part(reader, idx, err);
    return (stk_ckpt_part){.bytes = part->n_bytes,
                           .writer = part->writer,
                           .flags = is_coming ? STK_PART_COMING : 0,
                           .state = state};
}

int
sti_checkpointer_parts(struct sti_checkpointer *checkpointer, uint64_t step, bool is_read,
                       struct sti_part_list list, stk_error *err)
{
    struct sti_scan scans[2];
    struct sti_reader *reader = NULL; /* has the manifest, where there is one */
    struct sti_manifest manifest;
    stk_error why;
    bool is_told = false;
    int rc = sti_checkpointer_scans(checkpointer, scans, err);

    if (rc < 0)
        return rc;
    scans[0].nodes = NULL; /* what is here */
    const struct sti_reader_opts opts = sti_view_part_opts(checkpointer, &scans[0]);
    rc = sti_scan_manifest(&scans[0], step, &manifest, err);
    if (rc == 0 && is_read)
        rc = sti_reader_open(&reader, &manifest, &opts, err);
    if (rc < 0) {
        sti_aio_close(scans[0].aio);
        return rc;
    }
    const struct sti_manifest *found = reader ? sti_reader_manifest(reader) : &manifest;
    uint32_t n_out = found->n_parts < list.capacity ? found->n_parts : list.capacity;
    for (uint32_t idx = 0; idx < n_out; idx++) {
        list.out[idx] = look_at_part(&scans[0], reader, found, idx, &why);
        if (list.out[idx].state < 0 && list.out[idx].state != -ENOENT && !is_told) {
            is_told = true;
            if (err)
                *err = why;
        }
    }
    *list.total = found->n_parts;
    if (reader)
        sti_reader_close(reader);
    else
        sti_manifest_fini(&manifest);
    sti_aio_close(scans[0].aio);
    return (int)(n_out < INT32_MAX ? n_out : INT32_MAX);
}

static int
prune_old(struct sti_checkpointer *checkpointer, const struct sti_scan *scan, uint32_t keep,
          uint32_t *n_removed, stk_error *err)
{
    struct sti_saver_status copies = {.last_durable = UINT64_MAX};
    struct sti_retain *retain = sti_mem_new(1, sizeof(*retain));
    struct sti_aio_op op = {.kind = STI_AIO_LIST};

    if (!retain)
        return sti_error_set(err, -ENOMEM, "no memory to prune");
    if (checkpointer->copier)
        sti_saver_get_status(checkpointer->copier, &copies);
    *retain = (struct sti_retain){.dir_fd = scan->dir_fd,
                                  .keep = keep,
                                  .protect_step = UINT64_MAX,
                                  .pinned_step = copies.last_durable,
                                  .is_of_node = checkpointer->resolved.is_of_node &&
                                                checkpointer->team.engine};
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
    struct sti_scan scans[2];
    uint32_t n_removed = 0;

    if (!checkpointer->saver)
        return sti_error_set(err, -EROFS, "the checkpointer was opened with read_only");
    if (keep == 0)
        return sti_error_set(err, -EINVAL, "keep 0: at least one checkpoint stays");
    sti_saver_get_status(checkpointer->saver, &status);
    if (status.unfinished > 0)
        return sti_error_set(err, -EBUSY, "a save is under way; wait for it first");
    sti_saver_drain(checkpointer->saver); /* its own removals may still go on */
    if (checkpointer->drain)
        sti_saver_drain(checkpointer->drain);
    if (checkpointer->copier)
        sti_saver_drain(checkpointer->copier);
    int n_scans = sti_checkpointer_scans(checkpointer, scans, err);
    if (n_scans < 0)
        return n_scans;
    int rc = prune_old(checkpointer, &scans[0], keep, &n_removed, err);
    if (rc == 0 && orphans)
        rc = prune_orphans(checkpointer, &scans[0], &n_removed, err);
    sti_aio_close(scans[0].aio);
    if (ret_removed)
        *ret_removed = n_removed;
    return rc;
}
