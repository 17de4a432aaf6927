/* SPDX-License-Identifier: Apache-2.0 */
/* stoker probe: how fast a place can be read. The library's file in a directory has no
 * name, so SIGINT may end this at any point. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include <stoker/cost.h>

#include "args.h"
#include "cmd.h"
#include "json_text.h"

const char cmd_probe_help[] =
    "Usage: stoker probe PATH [OPTION...]\n"
    "\n"
    "Measures random reads of 4 KiB, 64 KiB and 1 MiB, with 1, 4, 16 and 64 at once: latency,\n"
    "bandwidth and reads per second. PATH is a file of 1 MiB at least, or a directory, in which a\n"
    "file is made for it that is gone afterwards.\n"
    "\n"
    "  --file-bytes N     of the file that is made; default 64M\n"
    "  --point-ms N       time for each point, 10 .. 60000; default 200\n"
    "  --io-method NAME   auto (default), uring or sync\n"
    "  --shape SPEC       of slow storage that is emulated: \"rbps=40M riops=4000 rlat=500us\"\n"
    "  --json             print one JSON object\n";

static int
print_json(const char *path, const stk_probe_point *points, int n)
{
    json_t *list = json_array();
    json_t *object = json_pack("{s:o, s:o}", "path", cli_json_text(path), "points", list);
    int bad = !object;

    for (int k = 0; !bad && k < n; k++)
        bad = json_array_append_new(
            list,
            json_pack("{s:I, s:I, s:f, s:f, s:f}", "block_bytes", (json_int_t)points[k].block_bytes,
                      "depth", (json_int_t)points[k].depth, "latency_s", points[k].latency_s,
                      "bytes_per_s", points[k].bytes_per_s, "reads_per_s", points[k].reads_per_s));
    bad = bad || json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (bad)
        return cli_error("probe", "the result cannot be written as JSON");
    (void)putchar('\n'); /* checked at the end */
    return cli_finish("probe");
}

static int
print_text(const stk_probe_point *points, int n)
{
    (void)puts("   block   depth   latency us        MB/s     reads/s");
    for (int k = 0; k < n; k++)
        (void)printf("%8" PRIu64 " %7" PRIu64 " %12.1f %11.1f %11.0f\n", points[k].block_bytes,
                     points[k].depth, points[k].latency_s * 1e6, points[k].bytes_per_s * 1e-6,
                     points[k].reads_per_s);
    return cli_finish("probe");
}

int
cmd_probe(int argc, char **argv)
{
    stk_engine_opts engine_opts = {STK_ENGINE_OPTS_INIT};
    stk_probe_opts opts = {STK_PROBE_OPTS_INIT};
    stk_probe_point points[STK_PROBE_POINTS];
    uint64_t point_ms = 0;
    bool json = false;
    const char *path = NULL;
    stk_engine *engine;
    stk_error err;
    const struct cli_option options[] = {
        {.name = "file-bytes", .kind = CLI_SIZE, .value = &opts.file_bytes},
        {.name = "point-ms", .kind = CLI_U64, .value = &point_ms, .low = 1, .high = UINT32_MAX},
        {.name = "shape", .kind = CLI_TEXT, .value = &engine_opts.shape},
        {.name = "io-method", .kind = CLI_TEXT, .value = &engine_opts.io_method},
        {.name = "json", .kind = CLI_FLAG, .value = &json},
    };
    int n = cli_parse(argc, argv, options, sizeof(options) / sizeof(options[0]), &path, 1);

    if (n < 0)
        return CLI_USAGE;
    if (n == 0)
        return cli_usage_error("probe", "which directory or file? Give its path");
    opts.point_ms = (uint32_t)point_ms;
    n = stk_engine_open(&engine, &engine_opts, &err);
    if (n < 0)
        return cli_refused("probe", "cannot start the engine", n, &err);
    n = stk_probe(engine, path, &opts, points, &err);
    stk_engine_close(engine);
    if (n < 0)
        return cli_refused("probe", NULL, n, &err);
    return json ? print_json(path, points, n) : print_text(points, n);
}
