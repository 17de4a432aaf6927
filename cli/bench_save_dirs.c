/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where "stoker bench save" saves: a directory of its own in each root, and in the shared one.
 * What a run that was killed has left there is removed before the ranks meet, so before anybody
 * has begun.
 */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "args.h"
#include "bench_save.h"

#define DIR_NAME "stoker-bench-save"
#define PATH_BYTES 1100 /* a root is at most 1000 */
#define REMOVE_TRIES 10

static int
remove_one(const char *path, const struct stat *found, int type, struct FTW *walk)
{
    (void)found;
    (void)type;
    (void)walk;
    return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

/* Several ranks may be at it: one that is overtaken in a directory ends early, and looks
 * again. */
static void
remove_tree(const char *path)
{
    for (int tries = 0; tries < REMOVE_TRIES && access(path, F_OK) == 0; tries++)
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
        (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int
make(const char *command, const char *option, const char *given, const char *suffix,
     char **ret_path)
{
    char *real = realpath(given, NULL);
    char path[PATH_BYTES];
    int n = real ? snprintf(path, sizeof(path), "%s/" DIR_NAME ".%s", real, suffix) : -1;

    if (!real || n >= (int)sizeof(path)) {
        const char *why = strerrordesc_np(real ? ENAMETOOLONG : errno);

        free(real);
        return cli_error(command, "--%s %s: %s", option, given, why);
    }
    free(real);
    *ret_path = strdup(path);
    return *ret_path ? CLI_OK : cli_error(command, "no memory");
}

int
bench_dirs_make(const char *command, struct bench_dirs *dirs,
                const struct bench_save_request *request)
{
    const bool is_first = !request->engine.comm || request->engine.comm->rank == 0;
    char suffix[24];
    size_t used = 0;
    int rc = CLI_OK;

    *dirs = (struct bench_dirs){.list = calloc(request->roots.count, PATH_BYTES)};
    if (!dirs->list)
        return cli_error(command, "no memory");
    for (size_t at = 0; rc == CLI_OK && at < request->roots.count; at++) {
        (void)snprintf(suffix, sizeof(suffix), "%zu", at); /* fits */
        rc = make(command, "root", request->roots.items[at], suffix, &dirs->roots[at]);
        if (rc != CLI_OK)
            return rc;
        dirs->n_roots = at + 1;
        used += (size_t)snprintf(dirs->list + used, request->roots.count * PATH_BYTES - used, " %s",
                                 dirs->roots[at]);
        /* Which of a node's ranks this is nobody knows yet, so all of them are at it. */
        if (is_first || request->ckpt.node_local)
            remove_tree(dirs->roots[at]);
    }
    if (rc == CLI_OK && request->shared)
        rc = make(command, "shared", request->shared, "shared", &dirs->shared);
    if (dirs->shared && is_first)
        remove_tree(dirs->shared);
    return rc;
}

void
bench_dirs_remove(struct bench_dirs *dirs, bool roots_too, bool shared_too)
{
    for (size_t at = 0; at < dirs->n_roots; at++) {
        if (roots_too)
            remove_tree(dirs->roots[at]);
        free(dirs->roots[at]);
    }
    if (dirs->shared && shared_too)
        remove_tree(dirs->shared);
    free(dirs->shared);
    free(dirs->list);
}
