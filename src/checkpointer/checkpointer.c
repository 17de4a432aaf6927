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
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "checkpointer/checkpointer_internal.h"
#include "checkpointer/exchange.h"
#include "checkpointer/lists.h"
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

/* path: as the manifest names it; where: as the system does. */
static int
open_root(struct sti_checkpointer *checkpointer, struct sti_root *root, const char *path,
          size_t length, const char *where, const struct sti_root_open *how, stk_error *err)
{
    root->path = sti_mem_new(length + 1, 1);
    if (!root->path)
        return sti_error_set(err, -ENOMEM, "no memory for a root");
    memcpy(root->path, path, length);
    if (!sti_utf8_is_valid(root->path)) /* JSON could not hold it: nobody would find the parts */
        return sti_error_set_path(err, -EINVAL, root->path,
                                  "the root's name is not UTF-8, as manifests are; use another");
    int rc = sti_root_open(root, where ? where : root->path, how, err);
    if (rc == 0)
        root->budget = sti_engine_budget(checkpointer->engine, root->device);
    return rc;
}

/* Only where parts go has to be writable in parts; the directory takes the manifests. */
static int
open_all(struct sti_checkpointer *checkpointer, const char *roots, const struct sti_root_open *how,
         stk_error *err)
{
    const char *word;
    int rc =
        open_root(checkpointer, &checkpointer->roots[0], ".", 1, checkpointer->directory, how, err);

    for (uint32_t idx = 1; rc == 0 && idx < checkpointer->resolved.n_roots; idx++) {
        size_t length = sti_ckpt_word(roots, idx - 1, &word);

        rc = open_root(checkpointer, &checkpointer->roots[idx], word, length, NULL, how, err);
    }
    if (rc == 0 && checkpointer->shared_directory)
        rc = open_root(checkpointer, &checkpointer->shared, ".", 1, checkpointer->shared_directory,
                       how, err);
    return rc;
}

static int
open_roots(struct sti_checkpointer *checkpointer, const char *roots, uint64_t session,
           stk_error *err)
{
    const struct sti_ckpt_resolved *resolved = &checkpointer->resolved;
    struct sti_root_open how = {.session = session,
                                .is_buffered = resolved->is_buffered,
                                .is_read_only = resolved->is_read_only};

    checkpointer->roots = sti_mem_new(resolved->n_roots, sizeof(checkpointer->roots[0]));
    how.block = sti_mem_new_aligned(TRIAL_BLOCK_BYTES, TRIAL_BLOCK_BYTES);
    if (!checkpointer->roots || !how.block) {
        sti_mem_free(how.block);
        return sti_error_set(err, -ENOMEM, "no memory for the roots");
    }
    memset(how.block, 0, TRIAL_BLOCK_BYTES);
    for (uint32_t idx = 0; idx < resolved->n_roots; idx++)
        checkpointer->roots[idx].dir_fd = -1;
    int rc = sti_engine_aio_open(checkpointer->engine, &how.aio, err);
    if (rc == 0)
        rc = open_all(checkpointer, roots, &how, err);
    sti_aio_close(how.aio);
    sti_mem_free(how.block);
    return rc;
}

/* What a saver and the one that drains have in common. */
static struct sti_saver_opts
saver_opts(const struct sti_checkpointer *checkpointer, enum sti_team_topic topic, uint64_t session)
{
    const struct sti_ckpt_resolved *resolved = &checkpointer->resolved;
    const struct sti_team *team = &checkpointer->team;

    return (struct sti_saver_opts){.aio = sti_loop_aio(sti_engine_loop(checkpointer->engine)),
                                   .pool = sti_engine_pool(checkpointer->engine),
                                   .slot_bytes = (uint32_t)resolved->slot_bytes,
                                   .chunk_bytes = resolved->chunk_bytes,
                                   .writer = team->rank,
                                   .world = team->engine ? team->world : 1,
                                   .session = (team->engine ? team->session : session) + topic,
                                   .vote = team->votes[topic].vote};
}

static int
open_drain(struct sti_checkpointer *checkpointer, uint64_t session, stk_error *err)
{
    const struct sti_ckpt_resolved *resolved = &checkpointer->resolved;
    struct sti_saver_opts opts = saver_opts(checkpointer, STI_TEAM_COPIES, session);

    opts.roots = &checkpointer->shared;
    opts.n_roots = 1;
    opts.slots = resolved->slots / 2 > 2 ? resolved->slots / 2 : 2;
    opts.outstanding = 1;
    opts.keep = resolved->shared_keep;
    opts.is_drain = true;
    int rc = sti_saver_new(&checkpointer->drain, &opts, err);
    if (rc < 0)
        return rc;
    checkpointer->drain_task =
        (struct sti_task){.step = sti_saver_step, .context = checkpointer->drain};
    sti_loop_attach(sti_engine_loop(checkpointer->engine), &checkpointer->drain_task);
    return 0;
}

/* Copies from the node before this one, into the same roots. */
static int
open_copier(struct sti_checkpointer *checkpointer, uint64_t session, stk_error *err)
{
    const struct sti_ckpt_resolved *resolved = &checkpointer->resolved;
    const struct sti_team *team = &checkpointer->team;
    struct sti_saver_opts opts = saver_opts(checkpointer, STI_TEAM_PARTNERS, session);

    if (team->nodes.n == 0)
        return sti_error_set(err, -ENOTSUP, "partner: all ranks are on one node; it needs two");
    uint64_t most = sti_depot_most_bytes(team->depot);
    checkpointer->pull = (struct sti_pull){
        .depot = team->depot, .peer = team->keepers[team->nodes.n - 1], .takes = team->takes};
    opts.session = team->session; /* under the names of what it copies */
    opts.roots = checkpointer->roots;
    opts.n_roots = resolved->n_roots;
    opts.first_part_root = resolved->first_part_root;
    opts.slots = resolved->slots / 2 > 2 ? resolved->slots / 2 : 2;
    opts.slot_bytes = (uint32_t)(resolved->slot_bytes < most ? resolved->slot_bytes : most);
    opts.outstanding = 1;
    opts.pull = &checkpointer->pull;
    int rc = sti_saver_new(&checkpointer->copier, &opts, err);
    if (rc < 0)
        return rc;
    checkpointer->copier_task =
        (struct sti_task){.step = sti_saver_step, .context = checkpointer->copier};
    sti_loop_attach(sti_engine_loop(checkpointer->engine), &checkpointer->copier_task);
    return 0;
}

static int
open_saver(struct sti_checkpointer *checkpointer, uint64_t session, stk_error *err)
{
    const struct sti_ckpt_resolved *resolved = &checkpointer->resolved;
    struct sti_saver_opts opts = saver_opts(checkpointer, STI_TEAM_SAVES, session);
    int rc = checkpointer->shared_directory ? open_drain(checkpointer, session, err) : 0;

    if (rc == 0 && resolved->has_partner)
        rc = open_copier(checkpointer, session, err);
    if (rc < 0)
        return rc;
    opts.roots = checkpointer->roots;
    opts.n_roots = resolved->n_roots;
    opts.first_part_root = resolved->first_part_root;
    opts.slots = resolved->slots;
    opts.outstanding = resolved->outstanding;
    opts.keep = resolved->keep;
    opts.places = checkpointer->team.places;
    if (resolved->is_of_node)
        opts.commits = checkpointer->team.votes[STI_TEAM_COMMITS].vote; /* NULL: alone */
    opts.is_keeper = checkpointer->team.is_keeper;
    opts.is_checked = resolved->is_checked;
    opts.drain = checkpointer->drain;
    opts.drain_every = resolved->shared_every;
    opts.copier = checkpointer->copier;
    rc = sti_saver_new(&checkpointer->saver, &opts, err);
    if (rc < 0)
        return rc;
    checkpointer->task = (struct sti_task){.step = sti_saver_step, .context = checkpointer->saver};
    sti_loop_attach(sti_engine_loop(checkpointer->engine), &checkpointer->task);
    return 0;
}

/* Copies of a directory into itself would find every step there already. */
static int
check_shared(const struct sti_checkpointer *checkpointer, stk_error *err)
{
    struct stat own;
    struct stat other;

    if (fstat(checkpointer->roots[0].dir_fd, &own) < 0 ||
        fstat(checkpointer->shared.dir_fd, &other) < 0)
        return sti_error_set_path(err, -errno, checkpointer->shared_directory,
                                  "it cannot be looked at: %s", sti_error_text(-errno));
    if (own.st_dev != other.st_dev || own.st_ino != other.st_ino)
        return 0;
    return sti_error_set_path(err, -EINVAL, checkpointer->shared_directory,
                              "shared is the checkpoint directory itself; use another");
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
    if (opts->shared)
        checkpointer->shared_directory = sti_mem_strdup(opts->shared);
    if (!checkpointer->directory || (opts->shared && !checkpointer->shared_directory))
        return sti_error_set(err, -ENOMEM, "no memory for a checkpointer");
    rc = open_roots(checkpointer, opts->roots, session, err);
    if (rc == 0 && checkpointer->shared_directory)
        rc = check_shared(checkpointer, err);
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
sti_checkpointer_decline(struct sti_engine *engine, int code, stk_error *err)
{
    const stk_ckpt_opts opts = {0};
    const struct sti_team_opts team = {.engine = engine, .code = code};
    struct sti_team unused;

    return has_team(engine, &opts) ? sti_team_join(&unused, &team, err) : code;
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
    checkpointer->shared.dir_fd = -1;
    int rc = open_alone(checkpointer, directory, opts, session, err);
    if (has_team(engine, opts)) {
        const struct sti_team_opts team = {.engine = engine,
                                           .code = rc,
                                           .session = session,
                                           .chunk_bytes = checkpointer->resolved.chunk_bytes,
                                           .is_checked = checkpointer->resolved.is_checked,
                                           .is_shared = checkpointer->shared_directory != NULL,
                                           .is_of_node = checkpointer->resolved.is_of_node,
                                           .has_partner = checkpointer->resolved.has_partner,
                                           .roots = checkpointer->roots,
                                           .n_roots = checkpointer->resolved.n_roots,
                                           .writers = checkpointer->resolved.writers,
                                           .timeout_ns = checkpointer->resolved.vote_timeout_ns};

        rc = sti_team_join(&checkpointer->team, &team, err);
        if (rc == 0)
            rc = sti_exchange_new(&checkpointer->exchange, engine,
                                  checkpointer->resolved.vote_timeout_ns);
        if (rc < 0 && !checkpointer->exchange && checkpointer->team.engine)
            (void)sti_error_set(err, rc, "no memory for what ranks load together");
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
    sti_root_close(&checkpointer->shared);
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
    if (checkpointer->drain) {
        sti_saver_drain(checkpointer->drain);
        sti_loop_detach(sti_engine_loop(checkpointer->engine), &checkpointer->drain_task);
    }
    if (checkpointer->copier) {
        sti_saver_drain(checkpointer->copier);
        sti_loop_detach(sti_engine_loop(checkpointer->engine), &checkpointer->copier_task);
    }
    sti_saver_free(checkpointer->saver);
    sti_saver_free(checkpointer->drain);
    sti_saver_free(checkpointer->copier);
    sti_exchange_free(checkpointer->exchange);
    sti_team_leave(&checkpointer->team);
    close_roots(checkpointer);
    sti_mem_free(checkpointer->directory);
    sti_mem_free(checkpointer->shared_directory);
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
    if (rc == 0 && save->flags & STK_SAVE_SHARED && !checkpointer->drain)
        rc = sti_error_set(err, -EINVAL, "there is no shared directory to copy the save to");
    struct sti_saver_request request = {.step = save->step,
                                        .code = rc,
                                        .wants_drain = (save->flags & STK_SAVE_SHARED) != 0,
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

/* What a copy was lost by is told where nothing else is. */
static int
tell_of_copies(struct sti_checkpointer *checkpointer, int rc, stk_error *err)
{
    if (rc == 0 && checkpointer->copier)
        rc = sti_saver_fence(checkpointer->copier, err);
    return rc == 0 && checkpointer->drain ? sti_saver_fence(checkpointer->drain, err) : rc;
}

int
sti_checkpointer_fence(struct sti_checkpointer *checkpointer, stk_error *err)
{
    if (!checkpointer->saver)
        return 0;
    return tell_of_copies(checkpointer, sti_saver_fence(checkpointer->saver, err), err);
}

int
sti_checkpointer_fence_tensor(struct sti_checkpointer *checkpointer, uint32_t tensor,
                              stk_error *err)
{
    return checkpointer->saver ? sti_saver_fence_tensor(checkpointer->saver, tensor, err) : 0;
}

/* Who makes a save that durable; NULL: the saver itself. Errors: -ENOTSUP nobody does. */
static int
copier_of(const struct sti_checkpointer *checkpointer, stk_level level,
          struct sti_saver **ret_saver, stk_error *err)
{
    *ret_saver = level == STK_DURABLE_SHARED    ? checkpointer->drain
                 : level == STK_DURABLE_PARTNER ? checkpointer->copier
                                                : NULL;
    if (level == STK_CAPTURED || level == STK_DURABLE_LOCAL || *ret_saver)
        return 0;
    if (checkpointer->resolved.is_read_only &&
        (level == STK_DURABLE_SHARED || level == STK_DURABLE_PARTNER))
        return 0;
    return sti_error_set(err, -ENOTSUP, "level %d needs %s", (int)level,
                         level == STK_DURABLE_SHARED    ? "a shared directory"
                         : level == STK_DURABLE_PARTNER ? "the option partner"
                                                        : "to be one of stk_level");
}

int
sti_checkpointer_wait(struct sti_checkpointer *checkpointer, stk_level level, uint64_t timeout_ns,
                      stk_error *err)
{
    uint64_t begun_ns = sti_clock_ns();
    struct sti_saver *copier;
    int rc = copier_of(checkpointer, level, &copier, err);

    if (rc < 0 || !checkpointer->saver)
        return rc;
    rc = sti_saver_wait(checkpointer->saver,
                        level == STK_CAPTURED ? STI_LEVEL_CAPTURED : STI_LEVEL_DURABLE, timeout_ns,
                        err);
    if (rc < 0 || !copier)
        return tell_of_copies(checkpointer, rc, err);
    if (timeout_ns != UINT64_MAX) {
        uint64_t spent_ns = sti_clock_ns() - begun_ns;

        timeout_ns = spent_ns < timeout_ns ? timeout_ns - spent_ns : 0;
    }
    return sti_saver_wait(copier, STI_LEVEL_DURABLE, timeout_ns, err);
}

void
sti_checkpointer_status(struct sti_checkpointer *checkpointer, stk_ckpt_status *status)
{
    struct sti_saver_status from = {.last_captured = UINT64_MAX, .last_durable = UINT64_MAX};
    struct sti_saver_status copies = {.last_durable = UINT64_MAX};
    struct sti_saver_status partner = {.last_durable = UINT64_MAX};

    if (checkpointer->saver)
        sti_saver_get_status(checkpointer->saver, &from);
    if (checkpointer->drain)
        sti_saver_get_status(checkpointer->drain, &copies);
    if (checkpointer->copier)
        sti_saver_get_status(checkpointer->copier, &partner);
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
                                .unfinished = from.unfinished,
                                .shared_unfinished = copies.unfinished,
                                .shared = copies.durable,
                                .shared_failed = copies.failed,
                                .last_shared = copies.last_durable,
                                .partner = partner.durable,
                                .partner_failed = partner.failed,
                                .last_partner = partner.last_durable,
                                .partner_unfinished = partner.unfinished};
}
