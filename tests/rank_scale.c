/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Not a test: what the plan of one rank of many takes, in memory and in time, when its loader
 * is opened. Usage: rank_scale SAMPLES RANKS EPOCHS [keyed|torch [ssd]]. Samples of 100 KB, memory
 * for a rank's part and one sample; with ssd the half of it is on SSDs. bench/rank_scale.sh runs
 * it with several sizes; what is said of more is computed from that (docs/design/peers.md).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/holders.h"

#define SAMPLE_BYTES 100000u

static double
seconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A line of /proc/self/status in MB; -1 without it. */
static double
status_mb(const char *name)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    double mb = -1;

    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            mb = strtod(line + strlen(name), NULL) * 1024 * 1e-6;
    if (file)
        (void)fclose(file);
    return mb;
}

int
main(int argc, char **argv)
{
    if (argc < 4) {
        (void)fprintf(stderr, "usage: rank_scale SAMPLES RANKS EPOCHS [keyed|torch [ssd]]\n");
        return 2;
    }
    stk_order_opts asked = {
        STK_ORDER_OPTS_INIT,
        .kind = argc > 4 && strcmp(argv[4], "torch") == 0 ? STK_ORDER_TORCH : STK_ORDER_KEYED,
        .n = strtoull(argv[1], NULL, 10), .world = (uint32_t)strtoul(argv[2], NULL, 10), .seed = 3};
    struct sti_holders_opts opts = {.epochs = strtoull(argv[3], NULL, 10),
                                    .same_bytes = SAMPLE_BYTES};
    struct sti_holders holders;
    stk_error err;

    if (sti_order_init(&opts.order, &asked, &err) < 0 || opts.epochs == 0) {
        (void)fprintf(stderr, "rank_scale: %s\n", opts.epochs == 0 ? "no epochs" : err.message);
        return 2;
    }
    uint64_t *rooms = calloc(2 * (size_t)asked.world, sizeof(*rooms));
    if (!rooms)
        return 1;
    for (uint32_t rank = 0; rank < asked.world; rank++) {
        uint64_t part = asked.n / asked.world / (argc > 5 ? 2 : 1) + 2;

        rooms[rank] = part * SAMPLE_BYTES;
        rooms[asked.world + rank] = argc > 5 ? part * SAMPLE_BYTES : 0;
    }
    opts.room_bytes = rooms;
    opts.ssd_bytes = argc > 5 ? rooms + asked.world : NULL;
    opts.used_length = sti_order_length(&opts.order);
    opts.total_bytes = asked.n * SAMPLE_BYTES + SAMPLE_BYTES;
    double before_mb = status_mb("VmRSS:");
    double began_s = seconds_now();
    int rc = sti_holders_init(&holders, &opts);
    double took_s = seconds_now() - began_s;
    if (rc < 0) {
        (void)fprintf(stderr, "rank_scale: no memory\n");
        return 1;
    }
    double stays_mb = status_mb("VmRSS:") - before_mb;
    double most_mb = status_mb("VmHWM:") - before_mb;
    double n = (double)asked.n;

    (void)printf("%" PRIu64 " samples, %" PRIu32 " ranks, %" PRIu64 " epochs, %s%s: %.2f s, "
                 "%.0f MB (%.2f B a sample) at most, %.0f MB (%.2f B) stay; %s, %" PRIu64
                 " samples held\n",
                 asked.n, asked.world, opts.epochs, argc > 4 ? argv[4] : "keyed",
                 argc > 5 ? " with SSDs" : "", took_s, most_mb, most_mb * 1e6 / n, stays_mb,
                 stays_mb * 1e6 / n,
                 holders.is_computed                               ? "computed"
                 : asked.n <= STI_HOLDERS_COUNTS_MAX / asked.world ? "counted"
                                                                   : "first readers",
                 holders.n_mine);
    sti_holders_fini(&holders);
    free(rooms);
    return 0;
}
