/* SPDX-License-Identifier: Apache-2.0 */
/* stoker ckpt: what checkpoints there are, what is in them, whether they are whole;
 * export them, remove old ones. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <stoker/stoker.h>

#include "args.h"
#include "ckpt_parts.h"
#include "cmd.h"

#define LIST_MAX 65536u
#define DEFAULT_KEEP 2u
#define COPY_BYTES (UINT64_C(8) << 20)

const char cmd_ckpt_help[] =
    "Usage: stoker ckpt list DIR [--node-local]\n"
    "       stoker ckpt show DIR|FILE [--step N]\n"
    "       stoker ckpt verify DIR [--step N | --all] [--node-local]\n"
    "       stoker ckpt export DIR FILE [--step N]\n"
    "       stoker ckpt prune DIR [--keep N] [--orphans] [--root DIR...]\n"
    "\n"
    "Looks after a directory of checkpoints. Without --step the newest that is whole is meant.\n"
    "\n"
    "  list     all checkpoints, newest first, and which of them are not whole\n"
    "  show     tensors, blobs and metadata of one, or of any .safetensors file\n"
    "  verify   reads every byte and checks it; --all: of every checkpoint\n"
    "  export   writes one as a .safetensors file\n"
    "  prune    removes all but the newest --keep (default 2); --orphans: also what crashed\n"
    "           writers left there and in each --root; nobody may be saving meanwhile, and no\n"
    "           other directory may have checkpoints in those roots: their parts would go, too\n"
    "\n"
    "  --node-local        DIR is one of several nodes' own (stk_ckpt_opts.node_local): what its\n"
    "                      ranks wrote and what they copied for a partner is told, and verified;\n"
    "                      parts that other nodes have are not missed\n"
    "\n"
    "  --io-method M       auto (default), uring or sync\n"
    "  --quiet             no progress on standard error\n";

struct options {
    uint64_t step;
    uint64_t keep;
    struct cli_texts roots;
    const char *io_method;
    bool all;
    bool orphans;
    bool node_local;
    bool quiet;
};

struct ckpt {
    const char *command;
    const struct options *options;
    const char *path;
    stk_engine *engine;
    stk_ckpt *ckpt;
    uint64_t said_ns;
};

static int
fail(const struct ckpt *c, const char *what, int rc, const stk_error *err)
{
    return cli_refused(c->command, what, rc, err);
}

/* Opens the directory; roots only where something is to be removed from them. */
static int
open_ckpt(struct ckpt *c, bool is_read_only)
{
    static char roots[CLI_MAX_TEXTS * 1024]; /* too much for a stack */
    stk_ckpt_opts opts = {STK_CKPT_OPTS_INIT, .read_only = is_read_only, .slots = 2,
                          .slot_bytes = 65536, .keep = STK_NONE};
    stk_error err;
    size_t used = 0;
    struct stat found;

    for (size_t at = 0; at < c->options->roots.count; at++) {
        char *real = realpath(c->options->roots.items[at], NULL);

        if (!real || used + strlen(real) + 2 > sizeof(roots)) {
            free(real);
            return cli_error(c->command, "--root %s: it is not there, or too long",
                             c->options->roots.items[at]);
        }
        used += (size_t)snprintf(roots + used, sizeof(roots) - used, " %s", real);
        free(real);
    }
    opts.roots = roots;
    if (stat(c->path, &found) < 0) /* opening for writing would make it */
        return cli_error(c->command, "%s: %s", c->path, strerrordesc_np(errno));
    int rc = stk_ckpt_open(&c->ckpt, c->engine, c->path, &opts, &err);
    return rc < 0 ? fail(c, "cannot open", rc, &err) : CLI_OK;
}

/* Opens a checkpoint; says so where it is not the newest that there is. */
static int
open_view(struct ckpt *c, uint64_t step, stk_view **ret_view)
{
    stk_error err;
    int rc = stk_view_open(ret_view, c->ckpt, step, &err);

    if (rc < 0)
        return fail(c, "cannot open the checkpoint", rc, &err);
    if (rc > 0)
        (void)fprintf(stderr, "stoker %s: %d newer not whole: %s: %s\n", c->command, rc, err.path,
                      err.message);
    return CLI_OK;
}

static void
print_bytes(uint64_t bytes)
{
    if (bytes < 10000000)
        (void)printf("%10" PRIu64 " B ", bytes);
    else
        (void)printf("%10.1f MB", (double)bytes * 1e-6);
}

/* ---- list ------------------------------------------------------------------------- */

static void
print_time(uint64_t created_ns)
{
    const time_t seconds = (time_t)(created_ns / 1000000000u);
    struct tm parts;
    char text[32];

    if (created_ns == 0 || !gmtime_r(&seconds, &parts) ||
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts) == 0)
        (void)printf("%-20s", "-");
    else
        (void)printf("%s ", text);
}

static int
run_list(struct ckpt *c)
{
    stk_ckpt_info *infos = calloc(LIST_MAX, sizeof(*infos));
    uint32_t total;
    stk_error err;
    int n = -ENOMEM;

    if (!infos)
        return cli_error(c->command, "no memory");
    int rc = open_ckpt(c, true);
    if (rc == CLI_OK) {
        n = stk_ckpt_list(c->ckpt, infos, LIST_MAX, &total, &err);
        rc = n < 0 ? fail(c, "cannot list", n, &err) : CLI_OK;
    }
    for (int at = 0; rc == CLI_OK && at < n; at++) {
        (void)printf("step %-12" PRIu64, infos[at].step);
        print_time(infos[at].created_ns);
        print_bytes(infos[at].bytes);
        (void)printf("  %" PRIu32 " tensors in %" PRIu32 " part%s", infos[at].tensors,
                     infos[at].parts, infos[at].parts == 1 ? "" : "s");
        ckpt_parts_print(c->ckpt, &infos[at], c->options->node_local);
        (void)putchar('\n');
    }
    free(infos);
    return rc == CLI_OK ? cli_finish(c->command) : rc;
}

/* ---- show ------------------------------------------------------------------------- */

/* Names come out of files of anybody's: what steers a terminal is shown as a number. */
static void
print_name(const char *name)
{
    for (const unsigned char *at = (const unsigned char *)name; *at; at++) {
        bool is_wide = at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0; /* U+0080 .. U+009F */

        if (*at < 0x20 || *at == 0x7f || is_wide)
            (void)printf("\\x%02x", (unsigned)(is_wide ? *++at : *at));
        else
            (void)putchar(*at);
    }
}

static void
print_tensor(const char *kind, const stk_view_tensor *tensor)
{
    (void)printf("%s", kind);
    print_bytes(tensor->n_bytes);
    (void)printf("  %-8s [", tensor->dtype);
    for (uint32_t dim = 0; dim < tensor->dims; dim++)
        (void)printf("%s%" PRIu64, dim ? ", " : "", tensor->shape[dim]);
    (void)printf("]  ");
    print_name(tensor->name);
    (void)putchar('\n');
}

static void
print_view(const stk_view *view)
{
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_view_tensor tensor;
    stk_pair pair;

    (void)stk_view_get_info(view, &info); /* the size is right */
    if (info.step != STK_LATEST)
        (void)printf("step %" PRIu64 ", %" PRIu32 " parts by %" PRIu32 " writers, a checksum for "
                     "each %" PRIu32 " bytes\n",
                     info.step, info.parts, info.world, info.chunk_bytes);
    (void)printf("%" PRIu64 " bytes, %" PRIu64 " of them the header\n", info.bytes,
                 info.header_bytes);
    for (uint32_t at = 0; stk_view_metadata_at(view, at, &pair) == 0; at++) {
        (void)printf("metadata  ");
        print_name(pair.key);
        (void)printf(" = ");
        print_name(pair.value);
        (void)putchar('\n');
    }
    for (uint32_t at = 0; stk_view_blob_at(view, at, &tensor) == 0; at++)
        print_tensor("blob    ", &tensor);
    for (uint32_t at = 0; stk_view_tensor_at(view, at, &tensor) == 0; at++)
        print_tensor("tensor  ", &tensor);
}

static int
run_show(struct ckpt *c)
{
    stk_view *view = NULL;
    struct stat found;
    stk_error err;
    int rc = CLI_OK;

    if (stat(c->path, &found) == 0 && S_ISREG(found.st_mode)) {
        rc = stk_view_open_file(&view, c->engine, c->path, &err);
        if (rc < 0)
            return fail(c, "cannot open the file", rc, &err);
    } else {
        rc = open_ckpt(c, true);
        if (rc == CLI_OK)
            rc = open_view(c, c->options->step, &view);
        if (rc != CLI_OK)
            return rc;
    }
    print_view(view);
    stk_view_close(view);
    return cli_finish(c->command);
}

/* ---- verify and export ------------------------------------------------------------- */

static int
say_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct ckpt *c = context;
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (c->options->quiet || !isatty(STDERR_FILENO) || now_ns - c->said_ns < 250000000u)
        return 0;
    c->said_ns = now_ns;
    (void)fprintf(stderr, "\r\033[K%.0f %%", 100.0 * (double)done_bytes / (double)total_bytes);
    (void)fflush(stderr); /* nothing can be done about it */
    if (done_bytes == total_bytes)
        (void)fputs("\r\033[K", stderr);
    return 0;
}

static int
verify_step(struct ckpt *c, uint64_t step)
{
    stk_view_info info = {STK_VIEW_INFO_INIT};
    stk_view *view;
    stk_error err;
    int rc = open_view(c, step, &view);

    if (rc != CLI_OK)
        return rc;
    (void)stk_view_get_info(view, &info); /* the size is right */
    rc = stk_view_verify(view, say_progress, c, &err);
    if (rc < 0)
        rc = fail(c, "the checkpoint is damaged", rc, &err);
    else
        (void)printf("step %" PRIu64 ": %" PRIu64 " bytes are whole\n", info.step, info.bytes);
    stk_view_close(view);
    return rc;
}

/* The newest, that of a step, or all. */
static int
verify_node(struct ckpt *c, const stk_ckpt_info *infos, uint32_t n)
{
    const struct options *o = c->options;
    bool is_found = false;
    int rc = CLI_OK;

    for (uint32_t at = 0; at < n; at++) {
        if (o->step != STK_LATEST && infos[at].step != o->step)
            continue;
        int own = ckpt_parts_verify(c->command, c->ckpt, &infos[at]);

        is_found = true;
        rc = rc == CLI_OK ? own : rc;
        if (!o->all)
            break;
    }
    return is_found || (o->all && n == 0)
               ? rc
               : cli_error(c->command, "%s: there is no such checkpoint", c->path);
}

static int
run_verify(struct ckpt *c)
{
    stk_ckpt_info *infos = calloc(LIST_MAX, sizeof(*infos));
    uint32_t total;
    stk_error err;

    if (!infos)
        return cli_error(c->command, "no memory");
    int rc = open_ckpt(c, true);
    if (rc == CLI_OK && !c->options->all && !c->options->node_local) {
        rc = verify_step(c, c->options->step);
    } else if (rc == CLI_OK) {
        int n = stk_ckpt_list(c->ckpt, infos, LIST_MAX, &total, &err);

        if (n < 0)
            rc = fail(c, "cannot list", n, &err);
        else if (c->options->node_local)
            rc = verify_node(c, infos, (uint32_t)n);
        for (int at = 0; !c->options->node_local && at < n;
             at++) { /* all of them, also behind a damaged one */
            int own = verify_step(c, infos[at].step);

            rc = rc == CLI_OK ? own : rc;
        }
    }
    free(infos);
    return rc == CLI_OK ? cli_finish(c->command) : rc;
}

static int
copy_stream(struct ckpt *c, stk_view *view, FILE *to, const char *name)
{
    stk_view_info info = {STK_VIEW_INFO_INIT};
    char *bytes = malloc(COPY_BYTES);
    stk_error err;
    int rc = CLI_OK;

    if (!bytes)
        return cli_error(c->command, "no memory");
    (void)stk_view_get_info(view, &info); /* the size is right */
    for (uint64_t at = 0; rc == CLI_OK && at < info.bytes;) {
        uint64_t n = info.bytes - at < COPY_BYTES ? info.bytes - at : COPY_BYTES;
        int read_rc = stk_view_read(view, at, bytes, n, &err);

        if (read_rc < 0)
            rc = fail(c, "the checkpoint is damaged", read_rc, &err);
        else if (fwrite(bytes, 1, n, to) != n)
            rc = cli_error(c->command, "%s: %s", name, strerrordesc_np(errno));
        at += n;
        (void)say_progress(c, at, info.bytes);
    }
    free(bytes);
    return rc;
}

static int
run_export(struct ckpt *c, const char *name)
{
    stk_view *view = NULL;
    int rc = open_ckpt(c, true);

    if (rc == CLI_OK)
        rc = open_view(c, c->options->step, &view);
    if (rc != CLI_OK)
        return rc;
    FILE *to = fopen(name, "wbx");
    if (!to) {
        rc = cli_error(c->command, "%s: %s", name, strerrordesc_np(errno));
    } else {
        rc = copy_stream(c, view, to, name);
        if (rc == CLI_OK && (fflush(to) != 0 || fsync(fileno(to)) < 0))
            rc = cli_error(c->command, "%s: %s", name, strerrordesc_np(errno));
        if (fclose(to) != 0 && rc == CLI_OK)
            rc = cli_error(c->command, "%s: %s", name, strerrordesc_np(errno));
        if (rc != CLI_OK)
            (void)remove(name); /* half a file is worse than none */
    }
    stk_view_close(view);
    return rc;
}

/* ---- prune ------------------------------------------------------------------------ */

static int
run_prune(struct ckpt *c)
{
    const uint32_t flags = c->options->orphans ? STK_PRUNE_ORPHANS : 0;
    uint32_t n_removed = 0;
    stk_error err;
    int rc = open_ckpt(c, false);

    if (rc != CLI_OK)
        return rc;
    rc = stk_ckpt_prune(c->ckpt, (uint32_t)c->options->keep, flags, &n_removed, &err);
    if (rc < 0)
        return fail(c, "cannot remove", rc, &err);
    (void)printf("%" PRIu32 " removed\n", n_removed);
    return cli_finish(c->command);
}

/* ---- the command ------------------------------------------------------------------ */

static int
dispatch(struct ckpt *c, const char *what, const char *const *words, int n_words)
{
    bool is_export = strcmp(what, "export") == 0;

    if (n_words != (is_export ? 2 : 1))
        return cli_usage_error(c->command, is_export ? "it needs DIR and FILE" : "it needs a DIR");
    c->path = words[0];
    stk_error err;
    int rc = stk_engine_open(
        &c->engine, &(stk_engine_opts){STK_ENGINE_OPTS_INIT, .io_method = c->options->io_method},
        &err);
    if (rc < 0)
        return fail(c, "cannot start the engine", rc, &err);
    if (is_export)
        rc = run_export(c, words[1]);
    else if (strcmp(what, "list") == 0)
        rc = run_list(c);
    else if (strcmp(what, "show") == 0)
        rc = run_show(c);
    else if (strcmp(what, "verify") == 0)
        rc = run_verify(c);
    else
        rc = run_prune(c);
    stk_ckpt_close(c->ckpt);
    stk_engine_close(c->engine);
    return rc;
}

/* What would only be passed over is refused: whoever wrote it meant something. */
static int
check_options(const char *command, const char *what, const struct options *o)
{
    bool is_prune = strcmp(what, "prune") == 0;
    bool is_verify = strcmp(what, "verify") == 0;
    bool has_step = o->step != STK_LATEST;

    if (!is_prune && (o->keep > 0 || o->orphans || o->roots.count > 0))
        return cli_usage_error(command, "--keep, --orphans and --root are options of prune");
    if (has_step && (is_prune || strcmp(what, "list") == 0))
        return cli_usage_error(command, "--step is an option of show, verify and export");
    if (o->node_local && !is_verify && strcmp(what, "list") != 0)
        return cli_usage_error(command, "--node-local is an option of list and verify");
    if (o->all && !is_verify)
        return cli_usage_error(command, "--all is an option of verify");
    if (o->all && has_step)
        return cli_usage_error(command, "--all and --step exclude each other");
    if (o->roots.count > 0 && !o->orphans)
        return cli_usage_error(command,
                               "--root says where to look for --orphans, which is missing");
    return CLI_OK;
}

int
cmd_ckpt(int argc, char **argv)
{
    static const char *const commands[] = {"list", "show", "verify", "export", "prune"};
    struct options o = {.step = STK_LATEST};
    const struct cli_option options[] = {
        {"step", CLI_U64, &o.step, 0, INT64_MAX, NULL, NULL},
        {"all", CLI_FLAG, &o.all, 0, 0, NULL, NULL},
        {"keep", CLI_U64, &o.keep, 1, UINT32_MAX - 1, NULL, NULL},
        {"orphans", CLI_FLAG, &o.orphans, 0, 0, NULL, NULL},
        {"root", CLI_TEXTS, &o.roots, 0, 0, NULL, NULL},
        {"node-local", CLI_FLAG, &o.node_local, 0, 0, NULL, NULL},
        {"io-method", CLI_TEXT, &o.io_method, 0, 0, NULL, NULL},
        {"quiet", CLI_FLAG, &o.quiet, 0, 0, NULL, NULL},
    };
    char name[32] = "ckpt";
    struct ckpt c = {.command = name, .options = &o};
    const char *words[2];
    bool is_known = false;

    for (size_t at = 0; at < sizeof(commands) / sizeof(commands[0]); at++)
        is_known |= argc >= 2 && strcmp(argv[1], commands[at]) == 0;
    if (!is_known)
        return cli_usage_error(argv[0], "what is to be done? There are: list, show, verify, "
                                        "export, prune");
    (void)snprintf(name, sizeof(name), "ckpt %s", argv[1]); /* fits */
    const char *what = argv[1];
    argv[1] = name;
    int n_words =
        cli_parse(argc - 1, argv + 1, options, sizeof(options) / sizeof(options[0]), words, 2);
    if (n_words < 0)
        return CLI_USAGE;
    int rc = check_options(name, what, &o);
    if (rc != CLI_OK)
        return rc;
    if (o.keep == 0)
        o.keep = DEFAULT_KEEP;
    return dispatch(&c, what, words, n_words);
}
