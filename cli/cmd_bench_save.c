/* SPDX-License-Identifier: Apache-2.0 */
/* stoker bench save: the command line. */
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "bench_save.h"
#include "cmd.h"
#include "ranks.h"

const char cmd_bench_save_help[] =
    "\n"
    "Usage: stoker bench save --root DIR [--root DIR...] [OPTION...]\n"
    "\n"
    "Writes checkpoints of tensors made for it and says how fast they became durable, every sync\n"
    "included. What was written is removed at the end.\n"
    "\n"
    "  --size N            bytes of all tensors; default 1G\n"
    "  --tensors N         default 300, of mixed sizes; --equal: of one size\n"
    "  --root DIR          where to; several: one device each, all are written at once\n"
    "  --saves N           default 3; the medians count\n"
    "  --load              load the last one, too, and compare\n"
    "  --slots N --slot-bytes N --chunk-bytes N --outstanding N\n"
    "  --io-method M --buffered --workers N --io-threads N --queue-depth N --shape SPEC\n"
    "  --unarbitrated      loader and checkpoints use a device as they come\n"
    "  --json --quiet\n"
    "\n"
    "Ranks that a launcher started (torchrun, mpirun, srun, RANK and WORLD_SIZE) save together:\n"
    "what all hold is cut among them. Each reports what it saw.\n"
    "  --unique            each rank holds tensors of its own, --size each\n"
    "  --writers W         all (default), node or socket: the first rank of each writes\n"
    "  --check-replicas    compare what all hold, too\n"
    "  --together          with --load: each reads a part and gets the rest from the others\n"
    "  --load-next N       with --load --unique: load what the N-th rank behind this one holds, "
    "too\n"
    "  --vote-timeout-ms N that all have to write their part; default 300000\n"
    "  --start-timeout-ms N --peer-timeout-ms N\n"
    "  --alone             take no notice of a launcher\n"
    "  --node-local        the roots are each node's own; STOKER_NODE names it (default: found "
    "out)\n"
    "  --partner           each save is copied to the roots of another node, too\n"
    "\n"
    "Storage that outlives the machine's own\n"
    "  --shared DIR        what is durable in the roots is copied there in the background\n"
    "  --shared-every K    every K-th save is; default: each that finds no copy under way\n"
    "\n"
    "With copies the times until they are durable are told, and a save waits for those before it;\n"
    "but for --every-iteration, which goes on.\n"
    "\n"
    "A loop with times that are known\n"
    "  --every-iteration   with and without a save in each iteration\n"
    "  --iterations N      default 20\n"
    "  --forward-us N --backward-us N --optimizer-us N --accumulation G\n"
    "  --spin              burn a core instead of sleeping\n"
    "\n"
    "A loader meanwhile\n"
    "  --beside DATASET    reads it while the saves go on\n"
    "  --batch N --compute-us N --staging-bytes N\n";

struct parsed {
    uint64_t slots, chunk_bytes, outstanding;
    uint64_t queue_depth, workers, io_threads;
    uint64_t vote_timeout_ms, start_timeout_ms, peer_timeout_ms;
    uint64_t shared_every;
    const char *writers;
    bool buffered, unarbitrated, json, alone, check_replicas, node_local, partner;
};

static int
parse(struct bench_save_request *r, struct parsed *p, int argc, char **argv)
{
    const uint64_t max = UINT32_MAX;
    const uint64_t long_us = UINT64_C(1) << 40;
    const char *word;
    const struct cli_option options[] = {
        {"size", CLI_SIZE, &r->bytes, 4096, 0, NULL, NULL},
        {"tensors", CLI_U64, &r->tensors, 1, 10000000, NULL, NULL},
        {"equal", CLI_FLAG, &r->equal, 0, 0, NULL, NULL},
        {"root", CLI_TEXTS, &r->roots, 0, 0, NULL, NULL},
        {"saves", CLI_U64, &r->saves, 1, BENCH_SAVES_MAX, NULL, NULL},
        {"load", CLI_FLAG, &r->load, 0, 0, NULL, NULL},
        {"slots", CLI_U64, &p->slots, 0, max, NULL, NULL},
        {"slot-bytes", CLI_SIZE, &r->ckpt.slot_bytes, 0, 0, NULL, NULL},
        {"chunk-bytes", CLI_SIZE, &p->chunk_bytes, 0, max, NULL, NULL},
        {"outstanding", CLI_U64, &p->outstanding, 0, max, NULL, NULL},
        {"io-method", CLI_TEXT, &r->engine.io_method, 0, 0, NULL, NULL},
        {"buffered", CLI_FLAG, &p->buffered, 0, 0, NULL, NULL},
        {"workers", CLI_U64, &p->workers, 0, max, NULL, NULL},
        {"io-threads", CLI_U64, &p->io_threads, 0, max, NULL, NULL},
        {"queue-depth", CLI_U64, &p->queue_depth, 0, max, NULL, NULL},
        {"shape", CLI_TEXT, &r->engine.shape, 0, 0, NULL, NULL},
        {"unarbitrated", CLI_FLAG, &p->unarbitrated, 0, 0, NULL, NULL},
        {"json", CLI_FLAG, &p->json, 0, 0, NULL, NULL},
        {"unique", CLI_FLAG, &r->unique, 0, 0, NULL, NULL},
        {"together", CLI_FLAG, &r->together, 0, 0, NULL, NULL},
        {"writers", CLI_TEXT, &p->writers, 0, 0, NULL, NULL},
        {"check-replicas", CLI_FLAG, &p->check_replicas, 0, 0, NULL, NULL},
        {"load-next", CLI_U64, &r->load_next, 1, max, NULL, NULL},
        {"node-local", CLI_FLAG, &p->node_local, 0, 0, NULL, NULL},
        {"partner", CLI_FLAG, &p->partner, 0, 0, NULL, NULL},
        {"shared", CLI_TEXT, &r->shared, 0, 0, NULL, NULL},
        {"shared-every", CLI_U64, &p->shared_every, 1, max - 1, NULL, NULL},
        {"vote-timeout-ms", CLI_U64, &p->vote_timeout_ms, 1, max, NULL, NULL},
        {"start-timeout-ms", CLI_U64, &p->start_timeout_ms, 1, max, NULL, NULL},
        {"peer-timeout-ms", CLI_U64, &p->peer_timeout_ms, 1, max, NULL, NULL},
        {"alone", CLI_FLAG, &p->alone, 0, 0, NULL, NULL},
        {"quiet", CLI_FLAG, &r->quiet, 0, 0, NULL, NULL},
        {"every-iteration", CLI_FLAG, &r->every_iteration, 0, 0, NULL, NULL},
        {"iterations", CLI_U64, &r->iterations, 1, 1000000, NULL, NULL},
        {"forward-us", CLI_U64, &r->forward_us, 0, long_us, NULL, NULL},
        {"backward-us", CLI_U64, &r->backward_us, 0, long_us, NULL, NULL},
        {"optimizer-us", CLI_U64, &r->optimizer_us, 0, long_us, NULL, NULL},
        {"accumulation", CLI_U64, &r->accumulation, 1, 1000000, NULL, NULL},
        {"spin", CLI_FLAG, &r->spin, 0, 0, NULL, NULL},
        {"beside", CLI_TEXT, &r->beside, 0, 0, NULL, NULL},
        {"batch", CLI_U64, &r->beside_batch, 1, max, NULL, NULL},
        {"compute-us", CLI_U64, &r->beside_compute_us, 0, long_us, NULL, NULL},
        {"staging-bytes", CLI_SIZE, &r->beside_staging_bytes, 0, 0, NULL, NULL},
    };

    return cli_parse(argc, argv, options, sizeof(options) / sizeof(options[0]), &word, 0);
}

static int
take_writers(const char *command, const char *word, uint32_t *ret_writers)
{
    static const char *const words[] = {
        [STK_WRITERS_ALL] = "all", [STK_WRITERS_NODE] = "node", [STK_WRITERS_SOCKET] = "socket"};

    for (uint32_t at = 0; word && at < sizeof(words) / sizeof(words[0]); at++)
        if (strcmp(word, words[at]) == 0) {
            *ret_writers = at;
            return CLI_OK;
        }
    return word ? cli_usage_error(command, "--writers %s is not all, node or socket", word)
                : CLI_OK;
}

/* Makes the run one of a launcher's ranks, where there is one. */
static int
join_ranks(const char *command, struct bench_save_request *request, const struct parsed *p)
{
    static struct cli_ranks ranks; /* lives as long as the request */

    if (p->alone)
        return CLI_OK;
    const int rc = cli_ranks_find(command, &ranks);
    if (rc == CLI_OK && !ranks.is_one_of_many && (p->node_local || request->load_next > 0))
        return cli_usage_error(command,
                               "%s is for ranks, and no launcher has started any: set RANK "
                               "and WORLD_SIZE",
                               p->node_local ? "--node-local" : "--load-next");
    if (rc != CLI_OK || !ranks.is_one_of_many)
        return rc;
    if (request->beside)
        return cli_usage_error(command, "--beside measures one rank; give --alone");
    ranks.comm.start_timeout_ms = (uint32_t)p->start_timeout_ms;
    ranks.comm.timeout_ms = (uint32_t)p->peer_timeout_ms;
    request->engine.comm = &ranks.comm;
    return CLI_OK;
}

/* What would only be passed over is refused: whoever wrote it meant something. */
static int
check_options(const char *command, const struct bench_save_request *request, const struct parsed *p)
{
    if (request->roots.count == 0)
        return cli_usage_error(command, "a --root is missing");
    if (p->partner && !p->node_local)
        return cli_usage_error(command, "--partner copies what is one node's own: it needs "
                                        "--node-local");
    if (p->shared_every > 0 && !request->shared)
        return cli_usage_error(command, "--shared-every says which saves are copied to --shared "
                                        "DIR, which is missing");
    if (request->load_next > 0 && !(request->load && request->unique))
        return cli_usage_error(command, "--load-next loads what another rank holds for itself: it "
                                        "needs --load and --unique");
    if (request->load_next > 0 && request->together)
        return cli_usage_error(command, "--load-next and --together exclude each other");
    if (request->together && !request->load)
        return cli_usage_error(command, "--together is a way of loading: it needs --load");
    if (request->together && request->unique)
        return cli_usage_error(command, "--together loads what all ranks hold, and with --unique "
                                        "each holds its own");
    if (p->alone && (p->node_local || request->load_next > 0))
        return cli_usage_error(command, "--alone leaves no other rank for %s",
                               p->node_local ? "--node-local" : "--load-next");
    return CLI_OK;
}

int
cmd_bench_save(int argc, char **argv)
{
    static struct bench_save_result result; /* a thousand saves are too many for a stack */
    struct parsed p = {0};
    struct bench_save_request request = {.engine = {STK_ENGINE_OPTS_INIT},
                                         .ckpt = {STK_CKPT_OPTS_INIT},
                                         .bytes = UINT64_C(1) << 30,
                                         .tensors = 300,
                                         .saves = 3,
                                         .iterations = 20,
                                         .accumulation = 1,
                                         .forward_us = 100000,
                                         .backward_us = 200000,
                                         .optimizer_us = 10000,
                                         .beside_batch = 64};

    if (parse(&request, &p, argc, argv) < 0)
        return CLI_USAGE;
    int rc = check_options(argv[0], &request, &p);
    if (rc != CLI_OK)
        return rc;
    request.ckpt.slots = (uint32_t)p.slots;
    request.ckpt.chunk_bytes = (uint32_t)p.chunk_bytes;
    request.ckpt.outstanding = (uint32_t)p.outstanding;
    request.ckpt.keep = 1;
    request.engine.buffered = p.buffered;
    request.engine.unarbitrated = p.unarbitrated;
    request.engine.workers = (uint32_t)p.workers;
    request.engine.io_threads = (uint32_t)p.io_threads;
    request.engine.queue_depth = (uint32_t)p.queue_depth;
    request.ckpt.check_replicas = p.check_replicas;
    request.ckpt.vote_timeout_ms = (uint32_t)p.vote_timeout_ms;
    request.ckpt.node_local = p.node_local;
    request.ckpt.partner = p.partner;
    request.ckpt.shared_every = (uint32_t)p.shared_every;
    request.ckpt.shared_keep = 1;
    rc = take_writers(argv[0], p.writers, &request.ckpt.writers);
    if (rc == CLI_OK)
        rc = join_ranks(argv[0], &request, &p);
    if (rc == CLI_OK)
        rc = bench_save_run(argv[0], &request, &result);
    return rc == CLI_OK ? bench_save_report(argv[0], &request, &result, p.json) : rc;
}
