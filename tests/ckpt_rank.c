/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of several processes that save together, for scripts that kill, stop and cut off:
 *
 *     ckpt_rank save DIR N BYTES [ROOT...]
 *         saves N steps from the newest on and says "durable STEP" when each is; a failure is said
 *         and ends it with 3
 *     ckpt_rank load DIR N
 *         loads the newest N times, and says "loaded STEP" each time
 *     ckpt_rank together DIR N
 *         the same, with the other ranks, and says "read BYTES" of what came from storage
 *     ckpt_rank clean DIR 0
 *         alone: removes what dead writers have left
 *     ckpt_rank check DIR LEAST
 *         alone: loads the newest and compares it; fails below step LEAST (-1: there may be none)
 *
 * Who it is, and where rank 0 is: RANK, WORLD_SIZE, STOKER_ADDR, STOKER_PORT; how long it waits for
 * the others: START_MS. The rank LATE_RANK says "late STEP" before it saves, and waits LATE_MS,
 * while the others' vote goes on. With PER_NODE ranks on a node each node has a directory of its
 * own in DIR, and what is durable is so on a partner node, too; with HURRIES it saves on before
 * that, and says "saved STEP" until something is.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stoker/stoker.h>

#define ROWS 41u
#define COLS 1000u
#define OWN_BYTES 30000u
#define RANKS_MAX 16u

static uint32_t rank;
static uint32_t world = 1;
static uint32_t per_node; /* 0: one directory for all */
static int hurries;       /* and waits for no copy */
static int load_failed;   /* and it was said; else what was loaded was compared */

static int
say(const char *what, const stk_error *err)
{
    (void)printf("%s: %s: %s (%s), rank %d\n", what, err->path, err->message,
                 stk_strerror(err->code), err->rank);
    (void)fflush(stdout);
    return 3;
}

static void *
memory(uint64_t n_bytes)
{
    void *bytes = malloc(n_bytes + 8);

    if (!bytes)
        exit(2);
    return bytes;
}

static uint64_t
number(const char *name, uint64_t standard)
{
    const char *text = getenv(name); /* NOLINT(concurrency-mt-unsafe): one thread */

    return text ? strtoull(text, NULL, 10) : standard;
}

/* ---- what is saved ----------------------------------------------------------------- */

static void
fill(unsigned char *bytes, uint64_t n, uint64_t step, uint64_t of)
{
    for (uint64_t at = 0; at < n; at++)
        bytes[at] = (unsigned char)(at * 31 + at / 256 + step * 7 + of * 113);
}

static uint64_t
first_row(uint32_t of, uint32_t ranks)
{
    return (uint64_t)ROWS * of / ranks;
}

/* Rows are what a whole tensor filled for number 99 has there. */
static void
fill_rows(unsigned char *bytes, uint64_t from, uint64_t to, uint64_t step)
{
    unsigned char *all = memory(ROWS * COLS);

    fill(all, ROWS * COLS, step, 99);
    memcpy(bytes, all + from * COLS, (to - from) * COLS);
    free(all);
}

/* ---- saving ------------------------------------------------------------------------ */

static int
save_step(stk_ckpt *ckpt, uint64_t step, uint64_t n_bytes)
{
    const uint64_t from = first_row(rank, world);
    const uint64_t to = first_row(rank + 1, world);
    const uint64_t shapes[3][2] = {{n_bytes}, {OWN_BYTES}, {to - from, COLS}};
    const uint64_t global[2] = {ROWS, COLS};
    const uint64_t start[2] = {from, 0};
    unsigned char *data[3] = {memory(n_bytes), memory(OWN_BYTES), memory((to - from) * COLS)};
    stk_tensor tensors[3];
    stk_holding holdings[3] = {{0}, {0}, {.global_shape = global, .start = start}};
    char name[32];
    stk_error err;

    fill(data[0], n_bytes, step, 98);
    fill(data[1], OWN_BYTES, step, rank);
    fill_rows(data[2], from, to, step);
    (void)snprintf(name, sizeof(name), "own%" PRIu32, rank);
    const char *const names[3] = {"common", name, "rows"};
    for (int at = 0; at < 3; at++)
        tensors[at] = (stk_tensor){.name = names[at],
                                   .dtype = "U8",
                                   .shape = shapes[at],
                                   .data = data[at],
                                   .dims = at == 2 ? 2 : 1,
                                   .flags = STK_TENSOR_STABLE | (at > 0 ? STK_TENSOR_UNIQUE : 0)};
    const stk_save save = {STK_SAVE_INIT, .step = step, .tensors = tensors, .n_tensors = 3,
                           .holdings = holdings};
    int rc = stk_ckpt_save(ckpt, &save, &err);
    if (rc == 0)
        rc = stk_ckpt_wait(ckpt, per_node && !hurries ? STK_DURABLE_PARTNER : STK_DURABLE_LOCAL,
                           STK_FOREVER, &err);
    if (rc < 0)
        rc = say("failed", &err);
    for (int at = 0; at < 3; at++)
        free(data[at]);
    return rc;
}

static int
save_all(stk_ckpt *ckpt, char **argv)
{
    const uint64_t n = strtoull(argv[3], NULL, 10);
    const uint64_t n_bytes = strtoull(argv[4], NULL, 10);
    uint64_t newest = 0;
    stk_error err;
    uint64_t first = stk_ckpt_latest(ckpt, &newest, &err) < 0 ? 0 : newest + 1;
    stk_ckpt_status status = {STK_CKPT_STATUS_INIT};
    stk_ckpt_info info;
    uint32_t n_there;

    /* What was not acknowledged may be there in part, and its step is not given again. */
    if (per_node && stk_ckpt_list(ckpt, &info, 1, &n_there, &err) == 1)
        first = info.step + 1;

    const uint64_t late_ms = number("LATE_RANK", UINT32_MAX) == rank ? number("LATE_MS", 0) : 0;

    for (uint64_t step = first; step < first + n; step++) {
        if (late_ms > 0) {
            (void)printf("late %" PRIu64 "\n", step);
            (void)fflush(stdout);
            (void)usleep((useconds_t)late_ms * 1000); /* cut short by a signal: less late */
        }
        int rc = save_step(ckpt, step, n_bytes);

        if (rc != 0)
            return rc;
        if (hurries && stk_ckpt_get_status(ckpt, &status) == 0 && status.last_partner != STK_LATEST)
            (void)printf("durable %" PRIu64 "\n", status.last_partner);
        else
            (void)printf(hurries ? "saved %" PRIu64 "\n" : "durable %" PRIu64 "\n", step);
        (void)fflush(stdout);
    }
    return 0;
}

/* ---- looking ----------------------------------------------------------------------- */

static int
is_same(stk_view *view, const char *name, uint64_t step, uint64_t of)
{
    stk_view_tensor tensor;
    stk_error err;

    if (stk_view_tensor_find(view, name, &tensor) < 0)
        return 0;
    unsigned char *expected = memory(tensor.n_bytes);
    unsigned char *found = memory(tensor.n_bytes);
    const stk_load load = {.name = name, .dst = found, .n_bytes = tensor.n_bytes};
    int is_good = stk_view_load(view, &load, 1, &err) == 0;
    if (!is_good)
        load_failed = say("load", &err);
    fill(expected, tensor.n_bytes, step, of);
    is_good = is_good && memcmp(expected, found, tensor.n_bytes) == 0;
    free(expected);
    free(found);
    return is_good;
}

/* Compares all of a checkpoint; returns its step, UINT64_MAX: it is wrong. */
static uint64_t
compare(stk_view *view)
{
    stk_view_info info = {STK_VIEW_INFO_INIT};
    char name[32];

    if (stk_view_get_info(view, &info) < 0)
        return UINT64_MAX;
    int is_good = is_same(view, "common", info.step, 98) && is_same(view, "rows", info.step, 99);
    for (uint32_t of = 0; of < info.world; of++) {
        (void)snprintf(name, sizeof(name), "own%" PRIu32, of);
        is_good = is_good && is_same(view, name, info.step, of);
    }
    return is_good ? info.step : UINT64_MAX;
}

static int
load_all(stk_ckpt *ckpt, char **argv)
{
    stk_view *view;
    stk_error err;

    for (uint64_t left = strtoull(argv[3], NULL, 10); left > 0; left--) {
        if (stk_view_open(&view, ckpt, STK_LATEST, &err) < 0)
            return say("open", &err);
        uint64_t step = compare(view);
        stk_view_close(view);
        if (step == UINT64_MAX)
            return load_failed ? load_failed : 1;
        (void)printf("loaded %" PRIu64 "\n", step);
        (void)fflush(stdout);
    }
    return 0;
}

/* What this process has read so far, sockets not counted. */
static uint64_t
bytes_read(void)
{
    FILE *file = fopen("/proc/self/io", "re");
    uint64_t n = 0;
    char line[64];

    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "read_bytes: ", 12) == 0)
            n = strtoull(line + 12, NULL, 10);
    if (file)
        (void)fclose(file); /* only read */
    return n;
}

static int
load_together(stk_ckpt *ckpt, char **argv)
{
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_view_tensor tensor;
    stk_view *view;
    stk_error err;
    int rc = stk_view_open(&view, ckpt, STK_LATEST, &err);

    if (rc < 0 || stk_view_get_info(view, &info) < 0 ||
        stk_view_tensor_find(view, "common", &tensor) < 0)
        return say("open", &err);
    unsigned char *expected = memory(tensor.n_bytes);
    unsigned char *found = memory(tensor.n_bytes);
    fill(expected, tensor.n_bytes, info.step, 98);
    for (uint64_t left = strtoull(argv[3], NULL, 10); rc == 0 && left > 0; left--) {
        const stk_load load = {.name = "common", .dst = found, .n_bytes = tensor.n_bytes};
        uint64_t before = bytes_read();

        memset(found, 0, tensor.n_bytes);
        rc = stk_view_load_together(view, &load, 1, &err);
        if (rc < 0) {
            rc = say("load", &err);
            break;
        }
        if (memcmp(expected, found, tensor.n_bytes) != 0)
            rc = 1;
        (void)printf("read %" PRIu64 "\n", bytes_read() - before);
        (void)fflush(stdout);
    }
    free(expected);
    free(found);
    stk_view_close(view);
    return rc;
}

static int
clean(stk_ckpt *ckpt)
{
    stk_error err;

    return stk_ckpt_prune(ckpt, UINT32_MAX, STK_PRUNE_ORPHANS, NULL, &err) < 0 ? say("prune", &err)
                                                                               : 0;
}

static int
check(stk_ckpt *ckpt, char **argv)
{
    const int64_t least = strtoll(argv[3], NULL, 10);
    stk_view *view;
    stk_error err;
    int rc = stk_view_open(&view, ckpt, STK_LATEST, &err);

    if (rc < 0)
        return err.code == -2 && least < 0 ? 0 : say("latest", &err);
    uint64_t step = compare(view);
    stk_view_close(view);
    int is_good = rc == 0 && step != UINT64_MAX && (int64_t)step >= least;
    (void)printf("step %" PRId64 " is %s\n", (int64_t)step, is_good ? "right" : "WRONG");
    return !is_good;
}

int
main(int argc, char **argv)
{
    static char roots[4096];
    static char directory[4096];
    char node[16];
    size_t used = 0;
    stk_engine *engine;
    stk_ckpt *ckpt;
    stk_error err;

    if (argc < 4 || (argc < 5 && strcmp(argv[1], "save") == 0))
        return 2;
    for (int at = 5; at < argc; at++)
        used += (size_t)snprintf(roots + used, sizeof(roots) - used, " %s", argv[at]);
    int is_check = strcmp(argv[1], "check") == 0;
    int is_clean = strcmp(argv[1], "clean") == 0;
    rank = (uint32_t)number("RANK", 0);
    world = (uint32_t)number("WORLD_SIZE", 1);
    per_node = (uint32_t)number("PER_NODE", 0);
    hurries = (int)number("HURRIES", 0);
    (void)snprintf(node, sizeof(node), "node%" PRIu32, per_node ? rank / per_node : 0);
    (void)snprintf(directory, sizeof(directory), "%s%s%s", argv[2], per_node ? "/" : "",
                   per_node ? node : "");
    const stk_comm_opts comm = {STK_COMM_OPTS_INIT,
                                .rank = rank,
                                .world = world,
                                .host = getenv("STOKER_ADDR"), /* NOLINT(concurrency-mt-unsafe) */
                                .port = (uint32_t)number("STOKER_PORT", 0),
                                .secret = "of the test",
                                .node = per_node ? node : NULL,
                                .start_timeout_ms = (uint32_t)number("START_MS", 20000),
                                .timeout_ms = 700,
                                .close_timeout_ms = 3000};
    const stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .workers = 1,
                                         .comm = is_check || is_clean || world == 1 ? NULL : &comm};
    if (stk_engine_open(&engine, &engine_opts, &err) < 0)
        return say("engine", &err);
    const stk_ckpt_opts opts = {STK_CKPT_OPTS_INIT,         .roots = roots,
                                .slot_bytes = 1 << 20,      .slots = 4,
                                .vote_timeout_ms = 1500,    .read_only = is_check,
                                .node_local = per_node > 0, .partner = per_node > 0};
    int rc = stk_ckpt_open(&ckpt, engine, directory, &opts, &err);
    if (rc < 0)
        rc = say("open", &err);
    else if (is_check)
        rc = check(ckpt, argv);
    else if (is_clean)
        rc = clean(ckpt);
    else if (strcmp(argv[1], "together") == 0)
        rc = load_together(ckpt, argv);
    else
        rc = strcmp(argv[1], "load") == 0 ? load_all(ckpt, argv) : save_all(ckpt, argv);
    /* What is here the others may still load: all open one more, and so wait for each other. */
    stk_ckpt *last = NULL;
    if (rc == 0 && per_node && !is_clean &&
        stk_ckpt_open(&last, engine, directory, &opts, &err) < 0)
        rc = say("meet", &err);
    stk_ckpt_close(last);
    if (rc != 3 || is_check)
        stk_ckpt_close(ckpt);
    else
        _Exit(3);
    stk_engine_close(engine);
    return rc;
}
