/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "ckpt/reader.h"
#include "ckpt/scan.h"

#define N_TENSORS 4

static struct sti_pool *pool;

/* ---- the state that is saved ------------------------------------------------------- */

static const uint64_t full_shapes[N_TENSORS] = {700, 9001, 0, 3000};
static uint64_t shapes[N_TENSORS] = {700, 9001, 0, 3000};
static const char *const names[N_TENSORS] = {"weights", "momentum", "nothing", "own"};
static const char *const dtypes[N_TENSORS] = {"F64", "U8", "I32", "BF16"};
static const uint32_t sizes[N_TENSORS] = {8, 1, 4, 2};

void
machine_divide_state(uint64_t divisor)
{
    for (uint32_t at = 0; at < N_TENSORS; at++)
        shapes[at] = full_shapes[at] / divisor;
}

static void
make_tensor(char *bytes, uint32_t tensor, uint64_t step)
{
    for (uint64_t at = 0; at < shapes[tensor] * sizes[tensor]; at++)
        bytes[at] = (char)(at * 7 + tensor * 31 + step * 101 + at / 251);
}

int
machine_save(struct machine *machine, uint64_t step)
{
    static char bytes[N_TENSORS][9001];
    struct sti_layout_input inputs[N_TENSORS];
    struct sti_saver_tensor tensors[N_TENSORS];
    int rc = 0;

    for (uint32_t at = 0; at < N_TENSORS; at++) {
        make_tensor(bytes[at], at, step);
        inputs[at] =
            (struct sti_layout_input){.name = names[at],
                                      .dtype = dtypes[at],
                                      .shape = &shapes[at],
                                      .dims = 1,
                                      .owner = at == 3 ? STI_LAYOUT_OWN : STI_LAYOUT_SHARED};
        tensors[at] = (struct sti_saver_tensor){.data = bytes[at], .is_stable = at != 1};
    }
    struct sti_saver_request request = {
        .step = step, .inputs = inputs, .tensors = tensors, .n_tensors = N_TENSORS};
    for (uint32_t writer = 0; rc == 0 && writer < machine->world; writer++) {
        request.n_tensors = writer + 1 == machine->world ? N_TENSORS : N_TENSORS - 1;
        rc = sti_saver_save(machine->writers[writer].saver, &request, NULL);
    }
    return rc;
}

/* ---- writers ----------------------------------------------------------------------- */

static bool
is_busy(struct machine *machine)
{
    struct sti_saver_status status;

    for (uint32_t writer = 0; writer < machine->world; writer++) {
        sti_saver_get_status(machine->writers[writer].saver, &status);
        if (status.unfinished > 0)
            return true;
        if (machine->writers[writer].drain)
            sti_saver_get_status(machine->writers[writer].drain, &status);
        if (status.unfinished > 0)
            return true;
    }
    return sti_aio_pending(machine->disk.aio) > 0;
}

static void
step_all(struct machine *machine)
{
    for (uint32_t writer = 0; writer < machine->world; writer++) {
        (void)sti_saver_step(machine->writers[writer].saver);
        if (machine->writers[writer].drain)
            (void)sti_saver_step(machine->writers[writer].drain);
    }
}

void
machine_run_loop(struct machine *machine)
{
    do {
        step_all(machine);
        (void)sti_aio_wait(machine->disk.aio, 1000000);
    } while (is_busy(machine));
    step_all(machine);
}

/* What has become of the copy of a step. */
static int
look_at_copies(struct machine *machine, uint64_t step)
{
    struct sti_saver_status status;
    int rc = 0;

    for (uint32_t writer = 0; writer < machine->world; writer++) {
        int own = sti_saver_wait(machine->writers[writer].drain, STI_LEVEL_DURABLE, 0, NULL);

        rc = own < 0 && own != -ETIMEDOUT ? own : rc;
        sti_saver_get_status(machine->writers[writer].drain, &status);
        rc = rc == 0 && status.last_durable != step ? -EIO : rc;
    }
    if (rc == 0)
        machine->shared_acknowledged = step;
    return rc;
}

int
machine_save_and_wait(struct machine *machine, uint64_t step)
{
    int rc = machine_save(machine, step);

    if (rc == 0) {
        machine_run_loop(machine);
        for (uint32_t writer = 0; writer < machine->world; writer++) {
            int own = sti_saver_wait(machine->writers[writer].saver, STI_LEVEL_DURABLE, 0, NULL);

            rc = own < 0 && own != -ETIMEDOUT ? own : rc;
        }
    }
    if (rc == 0)
        machine->acknowledged = step;
    if (rc == 0 && machine->writers[0].drain)
        rc = look_at_copies(machine, step);
    machine->last_result = rc;
    return rc;
}

static int
open_writer(struct machine *machine, uint32_t idx, const struct scenario *scenario)
{
    static const char *const paths[] = {"/run", "/a", "/b", "/shared"};
    struct writer *writer = &machine->writers[idx];
    bool is_other = scenario->is_of_nodes && idx + 1 == scenario->world;
    struct sti_root_open how = {
        .aio = machine->disk.aio, .session = 1, .is_buffered = true, .block = NULL};

    for (uint32_t at = 0; at < 4; at++) {
        if (at > scenario->n_roots && (at < 3 || !scenario->is_drained))
            continue;
        writer->roots[at] =
            (struct sti_root){.dir_fd = -1, .path = sti_mem_strdup(at % 3 > 0 ? paths[at] : ".")};
        int rc = sti_root_open(&writer->roots[at], at == 0 && is_other ? "/other" : paths[at], &how,
                               NULL);
        if (rc < 0)
            return rc;
        if (scenario->is_direct)
            writer->roots[at].dio =
                (struct sti_dio){.is_direct = true, .block_bytes = 512, .memory_align = 512};
    }
    struct sti_saver_opts opts = {.aio = machine->disk.aio,
                                  .pool = pool,
                                  .roots = writer->roots,
                                  .n_roots = scenario->n_roots + 1,
                                  .first_part_root = scenario->n_roots > 0 ? 1 : 0,
                                  .slots = 2,
                                  .slot_bytes = 65536,
                                  .chunk_bytes = 4096,
                                  .outstanding = 1,
                                  .keep = scenario->keep,
                                  .writer = idx,
                                  .world = scenario->world,
                                  .session = 7,
                                  .vote = machine->vote,
                                  .commits = machine->commits,
                                  .is_keeper = is_other || idx == 0};
    if (scenario->is_drained) {
        struct sti_saver_opts drain = opts;

        drain.roots = &writer->roots[3];
        drain.n_roots = 1;
        drain.first_part_root = 0;
        drain.session = 8;
        drain.vote = machine->drain_vote;
        drain.commits = NULL;
        drain.is_drain = true;
        int rc = sti_saver_new(&writer->drain, &drain, NULL);
        if (rc < 0)
            return rc;
        opts.drain = writer->drain;
        opts.drain_every = 1;
    }
    return sti_saver_new(&writer->saver, &opts, NULL);
}

int
machine_start(struct machine *machine, const struct scenario *scenario)
{
    int rc = 0;

    machine->world = scenario->world;
    machine->acknowledged = NOTHING;
    machine->shared_acknowledged = NOTHING;
    assert_int_equal(sti_vote_new(&machine->vote, scenario->world), 0);
    assert_int_equal(sti_vote_new(&machine->drain_vote, scenario->world), 0);
    machine->is_of_nodes = scenario->is_of_nodes;
    if (scenario->is_of_nodes)
        assert_int_equal(sti_vote_new(&machine->commits, scenario->world), 0);
    for (uint32_t writer = 0; rc == 0 && writer < scenario->world; writer++)
        rc = open_writer(machine, writer, scenario);
    return rc;
}

void
machine_stop(struct machine *machine)
{
    for (uint32_t writer = 0; writer < machine->world; writer++) {
        sti_saver_free(machine->writers[writer].saver);
        sti_saver_free(machine->writers[writer].drain);
        for (uint32_t at = 0; at < 4; at++) {
            struct sti_root *root = &machine->writers[writer].roots[at];

            if (root->path && root->dir_fd >= 0) {
                struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = root->dir_fd};

                (void)sti_aio_run(machine->disk.aio, &op);
            }
            sti_mem_free(root->path);
        }
    }
    sti_vote_free(machine->vote);
    sti_vote_free(machine->drain_vote);
    sti_vote_free(machine->commits);
}

void
machine_run(struct machine *machine, const struct scenario *scenario)
{
    if (machine_start(machine, scenario) < 0)
        return;
    for (uint64_t step = 0; step < scenario->n_saves; step++)
        if (machine_save_and_wait(machine, step) < 0)
            return;
}

/* ---- what is left ------------------------------------------------------------------ */

/* Reads all tensors of a checkpoint; what comes without an error must be its step's. */
static int
read_whole(struct sti_scan *scan, struct sti_manifest *manifest)
{
    static char expected[9001];
    static char got[N_TENSORS][9001];
    struct sti_reader_opts opts = {
        .scan = *scan, .slots = 2, .slot_bytes = 65536, .is_buffered = true};
    struct sti_want wants[N_TENSORS];
    struct sti_reader *reader;
    uint64_t step = manifest->step;
    int rc = sti_reader_open(&reader, manifest, &opts, NULL);

    if (rc < 0)
        return rc;
    for (uint32_t at = 0; at < N_TENSORS; at++) {
        const struct sti_layout_tensor *tensor =
            sti_layout_find(&sti_reader_manifest(reader)->layout, names[at]);

        assert_non_null(tensor);
        assert_int_equal(sti_slice_init(&wants[at].slice, tensor, NULL, NULL), 0);
        assert_int_equal(sti_slice_bytes(&wants[at].slice), shapes[at] * sizes[at]);
        wants[at].dst = got[at];
    }
    memset(got, 0x55, sizeof(got));
    rc = sti_reader_verify(reader, NULL, NULL, NULL);
    int read_rc = sti_reader_read(reader, wants, N_TENSORS, NULL);
    for (uint32_t at = 0; read_rc == 0 && at < N_TENSORS; at++) {
        make_tensor(expected, at, step);
        assert_memory_equal(expected, got[at], shapes[at] * sizes[at]);
    }
    sti_reader_close(reader);
    return rc < 0 ? rc : read_rc;
}

/* Every directory that is named as a checkpoint is one: also those that were being
 * removed. */
static void
check_older(struct fault_disk *left, const char *path)
{
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .open_flags = O_RDONLY | O_DIRECTORY};
    struct sti_scan scan = {.aio = left->aio, .path = path};
    struct sti_steps steps = {0};

    scan.dir_fd = sti_aio_run(left->aio, &op);
    assert_true(scan.dir_fd >= 0);
    assert_int_equal(sti_scan_steps(&scan, &steps, NULL), 0);
    for (uint32_t at = 0; at < steps.n; at++) {
        struct sti_manifest manifest;

        assert_int_equal(sti_scan_manifest(&scan, steps.list[at], &manifest, NULL), 0);
        assert_int_equal(sti_scan_check_parts(&scan, &manifest, NULL), 0);
        sti_manifest_fini(&manifest);
    }
    sti_steps_fini(&steps);
    op = (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = scan.dir_fd};
    assert_int_equal(sti_aio_run(left->aio, &op), 0);
}

static uint64_t
find_in(struct fault_disk *left, const char *path, int *ret_rc, uint32_t *ret_skipped)
{
    struct sti_aio_op op = {.kind = STI_AIO_OPEN,
                            .dir_fd = AT_FDCWD,
                            .path = path,
                            .open_flags = O_RDONLY | O_DIRECTORY};
    struct sti_scan scan = {.aio = left->aio, .path = path};
    struct sti_manifest manifest;
    uint64_t step = NOTHING;
    stk_error err;

    *ret_skipped = 0;
    scan.dir_fd = sti_aio_run(left->aio, &op);
    *ret_rc = scan.dir_fd;
    if (scan.dir_fd < 0)
        return NOTHING;
    *ret_rc = sti_scan_latest(&scan, &manifest, ret_skipped, &err);
    if (*ret_rc == 0) {
        step = manifest.step;
        *ret_rc = read_whole(&scan, &manifest);
    }
    op = (struct sti_aio_op){.kind = STI_AIO_CLOSE, .fd = scan.dir_fd};
    assert_int_equal(sti_aio_run(left->aio, &op), 0);
    return *ret_rc == 0 ? step : NOTHING;
}

uint64_t
machine_find(struct fault_disk *left, int *ret_rc, uint32_t *ret_skipped)
{
    return find_in(left, "/run", ret_rc, ret_skipped);
}

static uint64_t
recover_in(struct fault_disk *left, const char *path, bool is_strict)
{
    uint32_t n_skipped;
    int rc;
    uint64_t step = find_in(left, path, &rc, &n_skipped);

    assert_true(rc == 0 || rc == -ENOENT);
    assert_int_equal(n_skipped, 0);
    if (rc == 0 && is_strict)
        check_older(left, path);
    return step;
}

uint64_t
machine_recover(struct fault_disk *left, bool is_strict)
{
    return recover_in(left, "/run", is_strict);
}

/* Whether a directory has something as new as what was acknowledged there. */
static void
check_left(const struct machine *machine, struct fault_disk *left, const char *path,
           uint64_t acknowledged, const uint64_t where[2])
{
    uint64_t found = recover_in(left, path, !machine->has_failed_syncs);
    bool is_good = acknowledged == NOTHING || (found != NOTHING && found >= acknowledged);

    if (!is_good)
        print_error("cut at step %llu, variant %llu: acknowledged %lld in %s, found %lld\n",
                    (unsigned long long)where[0], (unsigned long long)where[1],
                    (long long)acknowledged, path, (long long)found);
    assert_true(is_good);
}

void
machine_check_all_left(const struct machine *machine, uint64_t step)
{
    uint64_t n = sti_fault_variants(machine->disk.fault);

    for (uint64_t variant = 0; variant < n; variant++) {
        struct fault_disk left;

        fault_crash(&left, &machine->disk, variant);
        check_left(machine, &left, "/run", machine->acknowledged, (uint64_t[]){step, variant});
        if (machine->is_of_nodes)
            check_left(machine, &left, "/other", machine->acknowledged,
                       (uint64_t[]){step, variant});
        if (machine->writers[0].drain)
            check_left(machine, &left, "/shared", machine->shared_acknowledged,
                       (uint64_t[]){step, variant});
        fault_stop(&left);
    }
}

void
machine_pool_open(void)
{
    assert_int_equal(sti_pool_open(&pool, 1, 0), 0);
}

void
machine_pool_close(void)
{
    sti_pool_close(pool);
}
