/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stoker index: makes the index of a data set, or says that it is good. An index appears
 * under its name only when it is whole, so SIGINT may end this at any point; what it may
 * leave is an unfinished file that nobody looks at.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include <stoker/engine.h>

#include "args.h"
#include "cmd.h"

const char cmd_index_help[] =
    "Usage: stoker index DATASET [OPTION...]\n"
    "\n"
    "Indexes a data set, unless its index is there and good, and prints what is in it. Tar\n"
    "shards are a file, a directory, a list \"train-{000..146}.tar\" or a pattern.\n"
    "\n"
    "Format\n"
    "  --format NAME      auto (default), class-folder, folder, record, npy, idx, window or\n"
    "                     tar\n"
    "  --extensions LIST  folders: endings of samples, as \".jpg .png\"; \"*\" for every file\n"
    "  --record-bytes N   record: bytes of a record, 1 .. 2^40\n"
    "  --header-bytes N   record, window: bytes before the first record or token\n"
    "  --window N         window: tokens of a sample\n"
    "  --stride N         window: tokens from one sample to the next; default: the window\n"
    "  --token-bytes N    window: bytes of a token, 1 .. 64; default 2\n"
    "  --fields LIST      tar: fields to load, in order, as \"jpg json\"; default: all\n"
    "  --labels FILE      record, npy, idx: a .npy or IDX file of one integer per sample\n"
    "\n"
    "Index\n"
    "  --index FILE       where it is; default: .stoker-index in or beside the data\n"
    "  --cache-dir DIR    where it goes if that cannot be written\n"
    "  --rebuild          make it anew even if it is good\n"
    "\n"
    "Other\n"
    "  --io-method NAME   auto (default), uring or sync\n"
    "  --json             print one JSON object\n";

static const struct cli_choice formats[] = {
    {"auto", STK_FORMAT_AUTO},
    {"class-folder", STK_FORMAT_CLASS_FOLDER},
    {"folder", STK_FORMAT_FOLDER},
    {"record", STK_FORMAT_RECORD},
    {"npy", STK_FORMAT_NPY},
    {"idx", STK_FORMAT_IDX},
    {"window", STK_FORMAT_WINDOW},
    {"tar", STK_FORMAT_TAR},
    {NULL, 0},
};

struct options {
    stk_engine_opts engine;
    stk_dataset_opts dataset;
    uint64_t token_bytes;
    bool rebuild;
    bool json;
};

static int
parse(int argc, char **argv, struct options *opts, const char **ret_path)
{
    stk_dataset_opts *data = &opts->dataset;
    const struct cli_option options[] = {
        {.name = "format", .kind = CLI_CHOICE, .value = &data->format, .choices = formats},
        {.name = "extensions", .kind = CLI_TEXT, .value = &data->extensions},
        {.name = "record-bytes",
         .kind = CLI_SIZE,
         .value = &data->record_bytes,
         .low = 1,
         .high = UINT64_C(1) << 40},
        {.name = "header-bytes", .kind = CLI_SIZE, .value = &data->header_bytes},
        {.name = "window", .kind = CLI_U64, .value = &data->window_tokens, .low = 1},
        {.name = "stride", .kind = CLI_U64, .value = &data->stride_tokens, .low = 1},
        {.name = "token-bytes", .kind = CLI_U64, .value = &opts->token_bytes, .low = 1, .high = 64},
        {.name = "fields", .kind = CLI_TEXT, .value = &data->fields},
        {.name = "labels", .kind = CLI_TEXT, .value = &data->labels_path},
        {.name = "index", .kind = CLI_TEXT, .value = &data->index_path},
        {.name = "cache-dir", .kind = CLI_TEXT, .value = &opts->engine.cache_dir},
        {.name = "rebuild", .kind = CLI_FLAG, .value = &opts->rebuild},
        {.name = "io-method", .kind = CLI_TEXT, .value = &opts->engine.io_method},
        {.name = "json", .kind = CLI_FLAG, .value = &opts->json},
    };
    int n_words = cli_parse(argc, argv, options, sizeof(options) / sizeof(options[0]), ret_path, 1);

    if (n_words < 0)
        return CLI_USAGE;
    if (n_words == 0)
        return cli_usage_error("index", "which data set? Give the path of a folder or a file");
    data->token_bytes = (uint32_t)opts->token_bytes;
    data->rebuild = opts->rebuild;
    return CLI_OK;
}

static const char *
format_name(uint32_t format)
{
    for (const struct cli_choice *choice = formats; choice->word; choice++)
        if (choice->value == format)
            return choice->word;
    return "unknown";
}

/* An index that no place takes is built again by every job. That is what is asked for
 * where nothing else is, and a failure where a cache directory was given. Returns CLI_OK
 * or CLI_FAILED. */
static int
say_kept(const char *path, const char *cache_dir, const stk_dataset_info *info)
{
    if (info->index_code == 0)
        return CLI_OK;
    if (cache_dir)
        return cli_error("index", "the index is not kept: --cache-dir %s: %s", cache_dir,
                         stk_strerror(info->index_code));
    (void)cli_error("index",
                    "the index is not kept: beside %s it cannot be written: %s; use --cache-dir",
                    path, stk_strerror(info->index_code));
    return CLI_OK;
}

/* Names come out of archives: what is no plain character does not reach the terminal. */
static void
print_field(const stk_dataset *dataset, uint32_t field_idx)
{
    const char *name = stk_dataset_field_name(dataset, field_idx);

    for (const char *at = name ? name : ""; *at; at++)
        (void)putchar(*at > ' ' && *at < 0x7f && *at != '"' && *at != '\\' ? *at : '?');
}

static void
print_json(const stk_dataset *dataset, const stk_dataset_info *info, double seconds)
{
    (void)printf("{\"format\": \"%s\", \"samples\": %" PRIu64 ", \"classes\": %" PRIu32
                 ", \"bytes\": %" PRIu64 ", \"max_sample_bytes\": %" PRIu64
                 ", \"record_bytes\": %" PRIu64 ", \"dtype\": \"%s\", \"shape\": [",
                 format_name(info->format), info->samples, info->classes, info->bytes,
                 info->max_sample_bytes, info->record_bytes, info->dtype);
    for (uint32_t i = 0; i < info->dims; i++)
        (void)printf("%s%" PRIu64, i ? ", " : "", info->shape[i]);
    (void)printf("], \"files\": %" PRIu32 ", \"fields\": [", info->files);
    for (uint32_t i = 0; i < info->fields; i++) {
        (void)printf("%s\"", i ? ", " : "");
        print_field(dataset, i);
        (void)printf("\"");
    }
    (void)printf("], \"fingerprint\": \"%016" PRIx64 "\", \"index_built\": %s, "
                 "\"index_kept\": %s, \"seconds\": %.6f}\n",
                 info->fingerprint, info->index_built ? "true" : "false",
                 info->index_code == 0 ? "true" : "false", seconds);
}

static void
print_text(const stk_dataset *dataset, const stk_dataset_info *info, double seconds)
{
    (void)printf("format       %s\n", format_name(info->format));
    (void)printf("samples      %" PRIu64 "\n", info->samples);
    if (info->classes)
        (void)printf("classes      %" PRIu32 "\n", info->classes);
    (void)printf("bytes        %" PRIu64 "\n", info->bytes);
    if (info->record_bytes)
        (void)printf("sample       %" PRIu64 " bytes", info->record_bytes);
    else
        (void)printf("sample       at most %" PRIu64 " bytes", info->max_sample_bytes);
    if (info->dtype[0])
        (void)printf(", %s", info->dtype);
    for (uint32_t i = 0; i < info->dims; i++)
        (void)printf("%s%" PRIu64, i ? " x " : " ", info->shape[i]);
    (void)printf("\n");
    if (info->format == STK_FORMAT_TAR) {
        (void)printf("shards       %" PRIu32 "\nfields      ", info->files);
        for (uint32_t i = 0; i < info->fields; i++) {
            (void)printf(" ");
            print_field(dataset, i);
        }
        (void)printf("\n");
    }
    (void)printf("fingerprint  %016" PRIx64 "\n", info->fingerprint);
    (void)printf("index        %s in %.3f s\n", info->index_built ? "built" : "found good",
                 seconds);
}

static double
now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int
cmd_index(int argc, char **argv)
{
    struct options opts = {.engine = {STK_ENGINE_OPTS_INIT}, .dataset = {STK_DATASET_OPTS_INIT}};
    stk_dataset_info info = {STK_DATASET_INFO_INIT};
    stk_engine *engine = NULL;
    stk_dataset *dataset = NULL;
    const char *path = NULL;
    stk_error err;

    int rc = parse(argc, argv, &opts, &path);
    if (rc != CLI_OK)
        return rc;
    rc = stk_engine_open(&engine, &opts.engine, &err);
    if (rc < 0)
        return cli_refused("index", NULL, rc, &err);
    double begin_s = now_s();
    rc = stk_dataset_open(&dataset, engine, path, &opts.dataset, &err);
    double seconds = now_s() - begin_s;
    if (rc == 0)
        rc = stk_dataset_get_info(dataset, &info);
    if (rc == 0 && opts.json)
        print_json(dataset, &info, seconds);
    else if (rc == 0)
        print_text(dataset, &info, seconds);
    stk_dataset_close(dataset);
    stk_engine_close(engine);
    if (rc < 0)
        return cli_refused("index", NULL, rc, &err);
    rc = say_kept(path, opts.engine.cache_dir, &info);
    return rc == CLI_OK ? cli_finish("index") : rc;
}
