/* SPDX-License-Identifier: Apache-2.0 */
/* stoker bench: the command line of the measurements. "save" is in its own file. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "bench_load.h"
#include "bench_report.h"
#include "bench_save.h"
#include "cmd.h"
#include "explain_report.h"
#include "explain_why.h"
#include "ranks.h"

#define EXIT_INTERRUPTED 130

const char cmd_bench_help[] =
    "Usage: stoker bench load DATASET... [OPTION...]\n"
    "\n"
    "Reads a data set as a training job would and says how fast it came, from where, and how\n"
    "long the job would have waited. SIGINT ends it early; what was measured is reported.\n"
    "Several data sets are read as one, one behind the other.\n"
    "\n"
    "Run\n"
    "  --batch B           samples of a batch; default 64\n"
    "  --epochs E          default 1; 0: on and on, with --steps\n"
    "  --steps N           at most so many batches\n"
    "  --compute-us N      sleep so long after each batch, as an accelerator computes\n"
    "  --spin              burn a core instead of sleeping\n"
    "  --touch             read every byte of every batch\n"
    "  --crc               make a CRC-32 of all bytes, in order\n"
    "  --explain           tell the run beforehand, too (stoker help explain), with what was\n"
    "                      learned of the tiers; with other ranks also the shares of tiers,\n"
    "                      and what the published policy (paper) would have read from where\n"
    "  --json              print one JSON object\n"
    "  --quiet             no progress on standard error\n"
    "\n"
    "Order\n"
    "  --order KIND        torch (default), keyed or sequential; also --kind\n"
    "  --seed S            default 0\n"
    "  --world W --rank R  default 1 and 0\n"
    "  --drop-last         leave out the incomplete last batch of an epoch\n"
    "\n"
    "Ranks that torchrun, mpirun or srun has started (RANK and WORLD_SIZE, or their own\n"
    "variables) serve each other's samples. STOKER_ADDR (MASTER_ADDR) and STOKER_PORT say where\n"
    "rank 0 is, STOKER_HOSTS which addresses may join or STOKER_SECRET who may; STOKER_TRANSPORTS\n"
    "is for UCX. STOKER_NODE names this machine, where one machine plays several.\n"
    "  --alone             none of this; --world says so, too\n"
    "  --start-timeout-ms N that all ranks have to come and to open the same; default 60000\n"
    "  --peer-timeout-ms N that a rank has to answer; default 10000\n"
    "  --close-timeout-ms N that a rank which is done serves the others at most; default 60000\n"
    "  --tiers-per-rank    --tier is what each rank has; else the ranks of a machine share it\n"
    "\n"
    "Loader\n"
    "  --policy P          next-use (default), lru, pin or none; with ranks also coordinated\n"
    "                      (their default) or paper\n"
    "  --layout L          raw or fixed; default: fixed where all samples have one size\n"
    "  --ram-bytes N       of the RAM tier; default: what the data set needs and is free\n"
    "  --ssd-bytes N       of the SSD tiers, likewise\n"
    "  --staging-bytes N   memory for batches ahead\n"
    "  --staging-batches N batches ahead at most\n"
    "  --horizon E         with --epochs 0: epochs looked ahead\n"
    "  --retries N         of a read that failed\n"
    "  --bad-sample WHAT   fail (default) or replace\n"
    "\n"
    "Engine\n"
    "  --tier T            ram:SIZE or ssd:PATH:SIZE; may be given several times\n"
    "  --io-method M       auto (default), uring or sync\n"
    "  --buffered          no direct I/O\n"
    "  --queue-depth N     reads in flight\n"
    "  --workers N         threads that decode and copy\n"
    "  --io-threads N      threads that read, with sync\n"
    "  --max-open-files N\n"
    "  --cache-dir DIR     for indexes of read-only data sets\n"
    "  --shape SPEC        emulate slow storage: \"rbps=40M riops=4000 rlat=500us\"\n"
    "  --ssd-shape SPEC    the same under the SSD tiers\n"
    "\n"
    "Data set\n"
    "  --subset A:B        samples A to B - 1 only; either may be left out\n"
    "  --weights W,W,...   one for each data set: draw from them in these proportions\n"
    "  --format F          class-folder, folder, record, npy, idx, window or tar; default:\n"
    "                      recognised\n"
    "  --fields LIST       tar: fields to load, in order, as \"jpg json\"; default: all\n"
    "  --header-bytes N --record-bytes N                    record, window\n"
    "  --token-bytes N --window N --stride N                window\n"
    "  --labels FILE       record, npy, idx\n"
    "  --extensions LIST   folders: accepted endings, separated by blanks; * for all\n"
    "  --index FILE        where the index is\n"
    "  --rebuild           make the index anew\n";

const char cmd_explain_help[] =
    "Usage: stoker explain DATASET [OPTION...]\n"
    "\n"
    "Tells a run beforehand: what comes from which tier in each epoch, how much the origin must\n"
    "give and how little it could be, how long the job will wait and which tier it waits for.\n"
    "Nothing of the data set is read but its index; a directory of an ssd tier is measured\n"
    "for a moment. The options are those of \"stoker bench load\", the default is 3 epochs, and\n"
    "\n"
    "  --origin-rate N        MB per second that the data set's storage gives\n"
    "  --origin-latency-us N  of one read of it\n"
    "  --ssd-rate N           MB per second of the SSDs together; default: measured\n"
    "  --ssd-latency-us N\n"
    "  --compute-us N         between two batches\n"
    "  --warm                 the SSDs hold from the start what they can\n"
    "  --peers                the --world ranks serve each other, as under a launcher\n"
    "  --node-ranks N         so many ranks of a machine share the tiers; default: 1\n"
    "  --json                 print one JSON object\n"
    "  --why SAMPLE           say where a sample is in the run and why, for all --world ranks "
    "with\n"
    "                         such tiers each, and no more: under --policy, else under next-use\n"
    "                         and what ranks that reach each other would do\n"
    "\n"
    "Without --origin-rate no time is told for the origin.\n";

static const struct cli_choice orders[] = {
    {"sequential", STK_ORDER_SEQUENTIAL},
    {"torch", STK_ORDER_TORCH},
    {"keyed", STK_ORDER_KEYED},
    {NULL, 0},
};
static const struct cli_choice policies[] = {
    {"none", STK_POLICY_NONE},
    {"pin", STK_POLICY_PIN},
    {"lru", STK_POLICY_LRU},
    {"next-use", STK_POLICY_NEXT_USE},
    {"coordinated", STK_POLICY_COORDINATED},
    {"paper", STK_POLICY_PAPER},
    {NULL, 0},
};
static const struct cli_choice layouts[] = {
    {"raw", STK_LAYOUT_RAW},
    {"fixed", STK_LAYOUT_FIXED},
    {NULL, 0},
};
static const struct cli_choice bad_samples[] = {
    {"fail", STK_BAD_FAIL},
    {"replace", STK_BAD_REPLACE},
    {NULL, 0},
};
static const struct cli_choice formats[] = {
    {"class-folder", STK_FORMAT_CLASS_FOLDER},
    {"folder", STK_FORMAT_FOLDER},
    {"record", STK_FORMAT_RECORD},
    {"npy", STK_FORMAT_NPY},
    {"idx", STK_FORMAT_IDX},
    {"window", STK_FORMAT_WINDOW},
    {"tar", STK_FORMAT_TAR},
    {NULL, 0},
};

/* Options whose field in the library is narrower, before they are put there. */
struct parsed {
    struct cli_texts tiers;
    const char *tiers_joined; /* static: a command line is read once */
    uint64_t batch, epochs, horizon, staging_batches, retries;
    uint64_t world, rank, node_ranks;
    uint64_t queue_depth, workers, io_threads, max_open_files;
    uint64_t token_bytes;
    uint64_t origin_rate, origin_latency_us, ssd_rate, ssd_latency_us;
    uint64_t start_timeout_ms, peer_timeout_ms, close_timeout_ms;
    bool drop_last, buffered, rebuild, json, alone, has_world, tiers_per_rank;
};

/* The library checks ranges and says what they are; here a value must only fit its field.
 * The table is large, so it is not to be part of the caller's frame. */
__attribute__((noinline)) static int
parse(struct bench_load_request *r, struct parsed *p, int argc, char **argv)
{
    const uint64_t max = UINT32_MAX;
    const struct cli_option options[] = {
        {"batch", CLI_U64, &p->batch, 0, max, NULL, NULL},
        {"epochs", CLI_U64, &p->epochs, 0, 0, NULL, NULL},
        {"steps", CLI_U64, &r->steps, 1, 0, NULL, NULL},
        {"compute-us", CLI_U64, &r->compute_us, 0, UINT64_C(1) << 40, NULL, NULL},
        {"spin", CLI_FLAG, &r->spin, 0, 0, NULL, NULL},
        {"touch", CLI_FLAG, &r->touch, 0, 0, NULL, NULL},
        {"crc", CLI_FLAG, &r->crc, 0, 0, NULL, NULL},
        {"explain", CLI_FLAG, &r->explain, 0, 0, NULL, NULL},
        {"warm", CLI_FLAG, &r->warm, 0, 0, NULL, NULL},
        {"peers", CLI_FLAG, &r->peers, 0, 0, NULL, NULL},
        {"node-ranks", CLI_U64, &p->node_ranks, 1, 65536, NULL, NULL},
        {"why", CLI_U64, &r->why, 0, 0, NULL, &r->asks_why},
        {"origin-rate", CLI_U64, &p->origin_rate, 1, 0, NULL, NULL},
        {"origin-latency-us", CLI_U64, &p->origin_latency_us, 1, 0, NULL, NULL},
        {"ssd-rate", CLI_U64, &p->ssd_rate, 1, 0, NULL, NULL},
        {"ssd-latency-us", CLI_U64, &p->ssd_latency_us, 1, 0, NULL, NULL},
        {"json", CLI_FLAG, &p->json, 0, 0, NULL, NULL},
        {"quiet", CLI_FLAG, &r->quiet, 0, 0, NULL, NULL},
        {"order", CLI_CHOICE, &r->order.kind, 0, 0, orders, NULL},
        {"kind", CLI_CHOICE, &r->order.kind, 0, 0, orders, NULL},
        {"seed", CLI_I64, &r->order.seed, 0, 0, NULL, NULL},
        {"world", CLI_U64, &p->world, 1, max, NULL, &p->has_world},
        {"alone", CLI_FLAG, &p->alone, 0, 0, NULL, NULL},
        {"start-timeout-ms", CLI_U64, &p->start_timeout_ms, 1, max, NULL, NULL},
        {"peer-timeout-ms", CLI_U64, &p->peer_timeout_ms, 1, max, NULL, NULL},
        {"close-timeout-ms", CLI_U64, &p->close_timeout_ms, 1, max, NULL, NULL},
        {"tiers-per-rank", CLI_FLAG, &p->tiers_per_rank, 0, 0, NULL, NULL},
        {"rank", CLI_U64, &p->rank, 0, max, NULL, NULL},
        {"drop-last", CLI_FLAG, &p->drop_last, 0, 0, NULL, NULL},
        {"policy", CLI_CHOICE, &r->loader.policy, 0, 0, policies, NULL},
        {"layout", CLI_CHOICE, &r->loader.layout, 0, 0, layouts, NULL},
        {"ram-bytes", CLI_SIZE, &r->loader.ram_bytes, 0, 0, NULL, NULL},
        {"ssd-bytes", CLI_SIZE, &r->loader.ssd_bytes, 0, 0, NULL, NULL},
        {"staging-bytes", CLI_SIZE, &r->loader.staging_bytes, 0, 0, NULL, NULL},
        {"staging-batches", CLI_U64, &p->staging_batches, 0, max, NULL, NULL},
        {"horizon", CLI_U64, &p->horizon, 0, max, NULL, NULL},
        {"retries", CLI_U64, &p->retries, 0, max, NULL, NULL},
        {"bad-sample", CLI_CHOICE, &r->loader.bad_sample, 0, 0, bad_samples, NULL},
        {"tier", CLI_TEXTS, &p->tiers, 0, 0, NULL, NULL},
        {"io-method", CLI_TEXT, &r->engine.io_method, 0, 0, NULL, NULL},
        {"buffered", CLI_FLAG, &p->buffered, 0, 0, NULL, NULL},
        {"queue-depth", CLI_U64, &p->queue_depth, 0, max, NULL, NULL},
        {"workers", CLI_U64, &p->workers, 0, max, NULL, NULL},
        {"io-threads", CLI_U64, &p->io_threads, 0, max, NULL, NULL},
        {"max-open-files", CLI_U64, &p->max_open_files, 0, max, NULL, NULL},
        {"cache-dir", CLI_TEXT, &r->engine.cache_dir, 0, 0, NULL, NULL},
        {"shape", CLI_TEXT, &r->engine.shape, 0, 0, NULL, NULL},
        {"ssd-shape", CLI_TEXT, &r->engine.ssd_shape, 0, 0, NULL, NULL},
        {"format", CLI_CHOICE, &r->data.opts.format, 0, 0, formats, NULL},
        {"header-bytes", CLI_SIZE, &r->data.opts.header_bytes, 0, 0, NULL, NULL},
        {"record-bytes", CLI_SIZE, &r->data.opts.record_bytes, 0, 0, NULL, NULL},
        {"token-bytes", CLI_U64, &p->token_bytes, 0, max, NULL, NULL},
        {"window", CLI_U64, &r->data.opts.window_tokens, 1, 0, NULL, NULL},
        {"stride", CLI_U64, &r->data.opts.stride_tokens, 1, 0, NULL, NULL},
        {"labels", CLI_TEXT, &r->data.opts.labels_path, 0, 0, NULL, NULL},
        {"extensions", CLI_TEXT, &r->data.opts.extensions, 0, 0, NULL, NULL},
        {"fields", CLI_TEXT, &r->data.opts.fields, 0, 0, NULL, NULL},
        {"subset", CLI_TEXT, &r->data.subset, 0, 0, NULL, NULL},
        {"weights", CLI_TEXT, &r->data.weights, 0, 0, NULL, NULL},
        {"index", CLI_TEXT, &r->data.opts.index_path, 0, 0, NULL, NULL},
        {"rebuild", CLI_FLAG, &p->rebuild, 0, 0, NULL, NULL},
    };

    return cli_parse(argc, argv, options, sizeof(options) / sizeof(options[0]), r->data.paths,
                     CLI_MAX_DATASETS);
}

/* Joins all --tier with blanks. Returns whether they fit. */
static bool
join_tiers(struct parsed *p)
{
    static char joined[8192];
    size_t used = 0;

    for (size_t k = 0; k < p->tiers.count; k++) {
        const int n =
            snprintf(joined + used, sizeof(joined) - used, "%s%s", k ? " " : "", p->tiers.items[k]);

        if (n < 0 || (size_t)n >= sizeof(joined) - used)
            return false;
        used += (size_t)n;
    }
    p->tiers_joined = joined;
    return true;
}

/* A cost that was given on the command line: what of it was not is taken from a good
 * disk. */
static stk_cost
given_cost(uint64_t rate_mb, uint64_t latency_us)
{
    if (rate_mb == 0 && latency_us == 0)
        return (stk_cost){0};
    return (stk_cost){.depth = 1,
                      .latency_s = latency_us ? (double)latency_us * 1e-6 : 100e-6,
                      .bytes_per_s = rate_mb ? (double)rate_mb * 1e6 : 1e9};
}

static void
fill_request(struct bench_load_request *r, struct parsed *p)
{
    r->loader.batch_size = (uint32_t)p->batch;
    r->loader.epochs = p->epochs;
    r->loader.horizon_epochs = (uint32_t)p->horizon;
    r->loader.staging_batches = (uint32_t)p->staging_batches;
    r->loader.retries = p->retries ? (uint32_t)p->retries : STK_NONE;
    r->loader.drop_last = p->drop_last;
    r->order.world = (uint32_t)p->world;
    r->order.rank = (uint32_t)p->rank;
    r->node_ranks = (uint32_t)p->node_ranks;
    r->order.drop_uneven = p->drop_last;
    r->engine.tiers = p->tiers.count ? p->tiers_joined : NULL;
    r->engine.buffered = p->buffered;
    r->engine.queue_depth = (uint32_t)p->queue_depth;
    r->engine.workers = (uint32_t)p->workers;
    r->engine.io_threads = (uint32_t)p->io_threads;
    r->engine.max_open_files = (uint32_t)p->max_open_files;
    r->data.opts.token_bytes = (uint32_t)p->token_bytes;
    r->data.opts.rebuild = p->rebuild;
    r->costs.tiers[STK_TIER_ORIGIN] = given_cost(p->origin_rate, p->origin_latency_us);
    r->costs.tiers[STK_TIER_SSD] = given_cost(p->ssd_rate, p->ssd_latency_us);
}

/* Reads the command line of bench load and explain. Returns CLI_OK or what to exit
 * with. */
static int
take_request(int argc, char **argv, struct bench_load_request *request, struct parsed *p)
{
    int n_words = parse(request, p, argc, argv);

    if (n_words < 0)
        return CLI_USAGE;
    if (n_words == 0)
        return cli_usage_error(argv[0], "a DATASET is missing");
    if (!join_tiers(p))
        return cli_usage_error(argv[0], "--tier: too long");
    request->data.n_paths = (size_t)n_words;
    fill_request(request, p);
    return CLI_OK;
}

static struct bench_load_request
empty_request(void)
{
    return (struct bench_load_request){.engine = {STK_ENGINE_OPTS_INIT},
                                       .data = {.opts = {STK_DATASET_OPTS_INIT}},
                                       .loader = {STK_LOADER_OPTS_INIT},
                                       .order = {STK_ORDER_OPTS_INIT},
                                       .costs = {STK_COSTS_INIT}};
}

/* Makes the run one of a launcher's ranks, where there is one and nothing else was asked
 * for. */
static int
join_ranks(const char *command, struct bench_load_request *request, const struct parsed *p)
{
    static struct cli_ranks ranks; /* lives as long as the request */

    if (p->alone || p->has_world)
        return CLI_OK;
    const int rc = cli_ranks_find(command, &ranks);
    if (rc != CLI_OK || !ranks.is_one_of_many)
        return rc;
    ranks.comm.start_timeout_ms = (uint32_t)p->start_timeout_ms;
    ranks.comm.timeout_ms = (uint32_t)p->peer_timeout_ms;
    ranks.comm.close_timeout_ms = (uint32_t)p->close_timeout_ms;
    ranks.comm.tiers_per_rank = p->tiers_per_rank;
    request->engine.comm = &ranks.comm;
    request->order.world = ranks.comm.world;
    request->order.rank = ranks.comm.rank;
    return CLI_OK;
}

static int
bench_load(int argc, char **argv)
{
    struct parsed p = {.batch = 64, .epochs = 1, .retries = 1, .world = 1};
    struct bench_load_request request = empty_request();
    struct bench_load_result result;
    int rc = take_request(argc, argv, &request, &p);

    if (rc != CLI_OK)
        return rc;
    if (request.asks_why)
        return cli_usage_error(argv[0], "--why is an option of \"stoker explain\"");
    if (!p.epochs && !request.steps)
        return cli_usage_error(argv[0], "--epochs 0 never ends; it needs --steps");
    rc = join_ranks(argv[0], &request, &p);
    if (rc != CLI_OK)
        return rc;
    rc = bench_load_run(argv[0], &request, &result);
    if (rc == CLI_OK && p.json)
        rc = bench_report_json(argv[0], &request, &result);
    else if (rc == CLI_OK)
        rc = bench_report_text(argv[0], &request, &result);
    const bool interrupted = result.interrupted;
    bench_load_free(&result);
    /* The library's threads may be waiting for storage that hangs, so nothing was closed: they
     * end with the process, before anything is torn down under them. The report is out. */
    if (interrupted)
        _exit(rc == CLI_OK ? EXIT_INTERRUPTED : rc);
    return rc;
}

/* Fills in what was not given of the SSDs, by reading the first of them for a moment. */
static void
probe_ssd(stk_engine *engine, const char *tiers, stk_costs *costs)
{
    char path[512];
    stk_probe_point points[STK_PROBE_POINTS];
    const stk_probe_opts opts = {STK_PROBE_OPTS_INIT, .point_ms = 20};
    const char *ssd = tiers ? strstr(tiers, "ssd:") : NULL;

    if (!ssd || costs->tiers[STK_TIER_SSD].bytes_per_s > 0)
        return;
    const size_t n = strcspn(ssd + 4, ":");
    if (n >= sizeof(path))
        return;
    memcpy(path, ssd + 4, n);
    path[n] = '\0';
    /* What cannot be measured stays unknown, and its times are told as 0. */
    if (stk_probe(engine, path, &opts, points, NULL) == STK_PROBE_POINTS)
        costs->tiers[STK_TIER_SSD] = (stk_cost){
            .depth = 64, .latency_s = points[0].latency_s, .bytes_per_s = points[7].bytes_per_s};
}

static int
explain(const char *command, const struct bench_load_request *request, bool json)
{
    struct bench_load_result result = {.io_method = "", .costs = request->costs};
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT, .io_method = request->engine.io_method,
                                   .cache_dir = request->engine.cache_dir};
    stk_engine *engine = NULL;
    struct cli_dataset open = {0};
    stk_error err;
    int rc = stk_engine_open(&engine, &engine_opts, &err);

    if (rc == 0)
        rc = cli_dataset_open(&open, engine, &request->data, &err);
    if (rc < 0) {
        rc = cli_refused(command, request->data.paths[0], rc, &err);
        goto out;
    }
    result.dataset = (stk_dataset_info){STK_DATASET_INFO_INIT};
    (void)stk_dataset_get_info(open.dataset, &result.dataset); /* the size is right */
    if (request->asks_why) {
        rc = explain_why(command, request, open.dataset);
        goto out;
    }
    probe_ssd(engine, request->engine.tiers, &result.costs);
    rc = bench_explain(command, request, open.dataset, &result.costs, &result.explained);
    if (rc == CLI_OK)
        rc = json ? explain_report_json(command, request, &result)
                  : explain_report_text(command, request, &result);

out:
    bench_load_free(&result);
    cli_dataset_close(&open);
    stk_engine_close(engine);
    return rc;
}

int
cmd_explain(int argc, char **argv)
{
    struct parsed p = {.batch = 64, .epochs = 3, .retries = 1, .world = 1};
    struct bench_load_request request = empty_request();
    int rc = take_request(argc, argv, &request, &p);

    return rc == CLI_OK ? explain(argv[0], &request, p.json) : rc;
}

int
cmd_bench(int argc, char **argv)
{
    static char load[] = "bench load"; /* what messages begin with */
    static char save[] = "bench save";

    if (argc >= 2 && strcmp(argv[1], "save") == 0) {
        argv[1] = save;
        return cmd_bench_save(argc - 1, argv + 1);
    }
    if (argc < 2 || strcmp(argv[1], "load") != 0)
        return cli_usage_error(argv[0], "what is to be measured? There are: load, save");
    argv[1] = load;
    return bench_load(argc - 1, argv + 1);
}
