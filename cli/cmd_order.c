/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker order: the ids of a rank's stream of an epoch. A computation that holds nothing,
 * so SIGINT may end it at any point.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <nettle/sha2.h>

#include <stoker/plan.h>

#include "args.h"
#include "cmd.h"

const char cmd_order_help[] =
    "Usage: stoker order --n N [OPTION...]\n"
    "\n"
    "Prints the sample ids that a rank reads in an epoch.\n"
    "\n"
    "Order\n"
    "  --kind KIND      torch (default), keyed or sequential\n"
    "  --n N            samples of the data set, 1 .. 2^48\n"
    "  --seed S         default 0\n"
    "  --epoch E        default 0\n"
    "  --world W        ranks, 1 .. 2^20; default 1\n"
    "  --rank R         0 .. W - 1; default 0\n"
    "  --drop-last      cut to a multiple of W instead of padding; with --batch also leave out\n"
    "                   the incomplete last batch\n"
    "\n"
    "Kind torch\n"
    "  --sampler NAME   distributed (default), dataloader, generator or stateful\n"
    "  --no-shuffle     ids in ascending order\n"
    "  --num-samples K  as RandomSampler's; not with distributed\n"
    "  --replacement    as RandomSampler's; not with distributed\n"
    "  --workers HOW    none (default), some or persistent: the workers of the DataLoader\n"
    "  --legacy         draw as torch <= 2.5 does (with --replacement: <= 2.6)\n"
    "\n"
    "Output\n"
    "  --head K         the first K ids, one per line (default: 10)\n"
    "  --all            all ids, one per line\n"
    "  --sha256         the SHA-256 of all ids as little-endian 64-bit integers\n"
    "  --batch B        without one of these: batches of B ids, one batch per line\n";

static const struct cli_choice kinds[] = {
    {"sequential", STK_ORDER_SEQUENTIAL},
    {"torch", STK_ORDER_TORCH},
    {"keyed", STK_ORDER_KEYED},
    {NULL, 0},
};
static const struct cli_choice samplers[] = {
    {"distributed", STK_SAMPLER_DISTRIBUTED},
    {"dataloader", STK_SAMPLER_DATALOADER},
    {"generator", STK_SAMPLER_GENERATOR},
    {"stateful", STK_SAMPLER_STATEFUL},
    {NULL, 0},
};
static const struct cli_choice worker_kinds[] = {
    {"none", STK_SAMPLER_WORKERS_NONE},
    {"some", STK_SAMPLER_WORKERS_SOME},
    {"persistent", STK_SAMPLER_WORKERS_PERSISTENT},
    {NULL, 0},
};

/* Ids that are asked for at a time where they cost nothing but themselves. */
#define CHUNK (UINT64_C(1) << 18)
#define DEFAULT_HEAD 10

enum output { OUTPUT_LINES, OUTPUT_BATCHES, OUTPUT_SHA256 };

struct request {
    stk_order_opts opts;
    uint64_t epoch;
    uint64_t batch; /* 0: none */
    uint64_t head;  /* ids at most */
    enum output output;
};

/* The options as they are parsed, before they are put together. */
struct parsed {
    uint64_t n, world, rank, num_samples, head;
    bool drop_last, no_shuffle, legacy, replacement, all, sha256;
    bool n_given, head_given, batch_given;
};

static int
parse(struct request *request, struct parsed *p, int argc, char **argv)
{
    stk_order_opts *opts = &request->opts;
    const uint64_t max_n = UINT64_C(1) << 48;
    const struct cli_option options[] = {
        {"kind", CLI_CHOICE, &opts->kind, 0, 0, kinds, NULL},
        {"n", CLI_U64, &p->n, 1, max_n, NULL, &p->n_given},
        {"seed", CLI_I64, &opts->seed, 0, 0, NULL, NULL},
        {"epoch", CLI_U64, &request->epoch, 0, 0, NULL, NULL},
        {"world", CLI_U64, &p->world, 1, UINT64_C(1) << 20, NULL, NULL},
        {"rank", CLI_U64, &p->rank, 0, (UINT64_C(1) << 20) - 1, NULL, NULL},
        {"batch", CLI_U64, &request->batch, 1, max_n, NULL, &p->batch_given},
        {"drop-last", CLI_FLAG, &p->drop_last, 0, 0, NULL, NULL},
        {"sampler", CLI_CHOICE, &opts->sampler, 0, 0, samplers, NULL},
        {"no-shuffle", CLI_FLAG, &p->no_shuffle, 0, 0, NULL, NULL},
        {"num-samples", CLI_U64, &p->num_samples, 1, max_n, NULL, NULL},
        {"replacement", CLI_FLAG, &p->replacement, 0, 0, NULL, NULL},
        {"workers", CLI_CHOICE, &opts->workers, 0, 0, worker_kinds, NULL},
        {"legacy", CLI_FLAG, &p->legacy, 0, 0, NULL, NULL},
        {"head", CLI_U64, &p->head, 0, 0, NULL, &p->head_given},
        {"all", CLI_FLAG, &p->all, 0, 0, NULL, NULL},
        {"sha256", CLI_FLAG, &p->sha256, 0, 0, NULL, NULL},
    };

    return cli_parse(argc, argv, options, sizeof(options) / sizeof(options[0]), NULL, 0);
}

static int
read_request(struct request *request, int argc, char **argv)
{
    struct parsed p = {.world = 1};

    *request = (struct request){.opts = {STK_ORDER_OPTS_INIT, .kind = STK_ORDER_TORCH}};
    if (parse(request, &p, argc, argv) < 0)
        return CLI_USAGE;
    if (!p.n_given)
        return cli_usage_error(argv[0], "--n is missing: how many samples the data set has");
    if (p.rank >= p.world)
        return cli_usage_error(argv[0],
                               "--rank is %" PRIu64 "; with --world %" PRIu64
                               " it must be from 0 to %" PRIu64,
                               p.rank, p.world, p.world - 1);
    if (p.head_given + p.all + p.sha256 > 1)
        return cli_usage_error(argv[0], "--head, --all and --sha256 exclude each other");
    request->opts.n = p.n;
    request->opts.world = (uint32_t)p.world;
    request->opts.rank = (uint32_t)p.rank;
    request->opts.num_samples = p.num_samples;
    request->opts.no_shuffle = p.no_shuffle;
    request->opts.drop_uneven = p.drop_last;
    request->opts.legacy_torch = p.legacy;
    request->opts.replacement = p.replacement;
    request->head = p.head_given ? p.head : UINT64_MAX;
    if (p.sha256)
        request->output = OUTPUT_SHA256;
    else if (p.batch_given && !p.all && !p.head_given)
        request->output = OUTPUT_BATCHES;
    else if (!p.all && !p.head_given)
        request->head = DEFAULT_HEAD;
    return CLI_OK;
}

/* Prints ids that begin at a position of the stream, each behind what separates it from
 * the one before. A failed write is kept by the stream and found at the end. */
static void
print_ids(const struct request *request, uint64_t position, const uint64_t *ids, uint64_t count)
{
    uint64_t per_line = request->output == OUTPUT_BATCHES ? request->batch : 1;

    for (uint64_t i = 0; i < count; i++, position++) {
        if (position)
            (void)putchar(position % per_line ? ' ' : '\n');
        (void)printf("%" PRIu64, ids[i]);
    }
}

static void
hash_ids(struct sha256_ctx *sha, const uint64_t *ids, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        unsigned char bytes[8];

        for (uint32_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (unsigned char)(ids[i] >> (8 * k));
        sha256_update(sha, sizeof(bytes), bytes);
    }
}

static void
print_digest(struct sha256_ctx *sha)
{
    unsigned char digest[SHA256_DIGEST_SIZE];

    sha256_digest(sha, sizeof(digest), digest);
    for (uint32_t i = 0; i < sizeof(digest); i++)
        (void)printf("%02x", digest[i]);
    (void)putchar('\n');
}

/* Writes the first count ids, in chunks of what memory there is room for. */
static int
write_ids(const struct request *request, const stk_order *order, uint64_t count)
{
    bool whole = request->opts.kind == STK_ORDER_TORCH && !request->opts.no_shuffle;
    uint64_t chunk = whole || count < CHUNK ? count : CHUNK;
    uint64_t *ids = calloc(chunk ? chunk : 1, sizeof(*ids));
    struct sha256_ctx sha;
    int rc = ids ? 0 : -ENOMEM;

    sha256_init(&sha);
    for (uint64_t at = 0; !rc && at < count; at += chunk) {
        uint64_t part = count - at < chunk ? count - at : chunk;

        rc = stk_order_ids(order, request->epoch, at, part, ids);
        if (!rc && request->output == OUTPUT_SHA256)
            hash_ids(&sha, ids, part);
        else if (!rc)
            print_ids(request, at, ids, part);
    }
    free(ids);
    if (rc)
        return cli_error("order", "cannot make %" PRIu64 " ids: %s", count, stk_strerror(rc));
    if (request->output != OUTPUT_SHA256 && count)
        (void)putchar('\n');
    if (request->output == OUTPUT_SHA256)
        print_digest(&sha);
    return cli_finish("order");
}

int
cmd_order(int argc, char **argv)
{
    struct request request;
    stk_order *order;
    stk_error err;
    uint64_t count;
    int rc = read_request(&request, argc, argv);

    if (rc)
        return rc;
    rc = stk_order_new(&order, &request.opts, &err);
    if (rc == -EINVAL)
        return cli_usage_error(argv[0], "%s", err.message);
    if (rc)
        return cli_error(argv[0], "%s", err.message);
    rc = stk_order_length(order, &count);
    if (rc) {
        rc = cli_error(argv[0], "%s", stk_strerror(rc));
    } else {
        if (request.opts.drop_uneven && request.batch)
            count -= count % request.batch;
        if (count > request.head)
            count = request.head;
        rc = write_ids(&request, order, count);
    }
    stk_order_free(order);
    return rc;
}
