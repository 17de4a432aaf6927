/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of shards. Braces are text and need no file system; wildcards and directories are
 * listed. Invariant: names stay below their directory, and none comes twice: both would
 * be a mistake in the pattern. One thread, the aio's owner; a listing fills its names on
 * a pool thread, whose hand-over orders it.
 */
#include "format/shards.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/name.h"
#include "format/path.h"
#include "io/aio.h"

#define BRACES_MAX 16
#define DIGITS_MAX 18
#define WILDCARDS "*?["

void
sti_shards_fini(struct sti_shards *shards)
{
    for (uint32_t at = 0; at < shards->n; at++)
        sti_mem_free(shards->names[at]);
    sti_mem_free(shards->names);
    *shards = (struct sti_shards){0};
}

int
sti_shards_add(struct sti_shards *shards, const char *name)
{
    if (shards->n == STI_SHARDS_MAX)
        return -E2BIG;
    if (shards->n == shards->room) {
        uint32_t room = shards->room ? 2 * shards->room : 16;
        char **names = sti_mem_resize(shards->names, room, sizeof(*names));

        if (!names)
            return -ENOMEM;
        shards->names = names;
        shards->room = room;
    }
    char *copy = sti_mem_strdup(name);
    if (!copy)
        return -ENOMEM;
    shards->names[shards->n++] = copy;
    return 0;
}

bool
sti_shards_is_pattern(const char *path)
{
    return path[strcspn(path, WILDCARDS "{")] != '\0';
}

const char *
sti_shards_pattern_part(const char *pattern)
{
    const char *at = pattern + strcspn(pattern, WILDCARDS "{");

    while (at > pattern && at[-1] != '/')
        at--;
    return at;
}

static int
fail(const char *pattern, int code, stk_error *err)
{
    if (code == -E2BIG)
        return sti_error_set_path(err, code, pattern, "more than %" PRIu32 " shards",
                                  STI_SHARDS_MAX);
    return sti_error_set_path(err, code, pattern, "cannot list the shards: %s",
                              sti_error_text(code));
}

/* ---- braces ------------------------------------------------------------------------ */

struct expansion {
    struct sti_shards *shards;
    const char *pattern; /* for errors */
    stk_error *err;
    uint32_t depth; /* braces being expanded */
};

static int
expand(struct expansion *expansion, const char *text);

static int
refuse(const struct expansion *expansion, const char *what)
{
    return sti_error_set_path(expansion->err, -EINVAL, expansion->pattern, "the list of shards %s",
                              what);
}

/* The closing brace that belongs to an opening one, NULL without. */
static const char *
find_end(const char *open)
{
    uint32_t depth = 0;

    for (const char *at = open; *at; at++) {
        if (*at == '{')
            depth++;
        else if (*at == '}' && --depth == 0)
            return at;
    }
    return NULL;
}

/* Expands a text with one choice in the place of its first braces, open .. end. */
static int
expand_choice(struct expansion *expansion, const char *text, size_t open_at, const char *choice,
              size_t choice_bytes, const char *behind)
{
    size_t n = open_at + choice_bytes + strlen(behind);
    char *chosen = n < PATH_MAX ? sti_mem_new(n + 1, 1) : NULL;

    if (n >= PATH_MAX)
        return refuse(expansion, "gives a name that is too long");
    if (!chosen)
        return fail(expansion->pattern, -ENOMEM, expansion->err);
    memcpy(chosen, text, open_at);
    memcpy(chosen + open_at, choice, choice_bytes);
    memcpy(chosen + open_at + choice_bytes, behind, strlen(behind));
    int rc = expand(expansion, chosen);
    sti_mem_free(chosen);
    return rc;
}

static size_t
count_digits(const char *at)
{
    return strspn(at, "0123456789");
}

/* {first..last}. Returns 1 where the text between the braces was that, 0 where it is
 * not. */
static int
expand_numbers(struct expansion *expansion, const char *text, const char *open, const char *end)
{
    char number[DIGITS_MAX + 2];
    const char *first_at = open + 1;
    size_t n_first = count_digits(first_at);
    const char *last_at = first_at + n_first + 2;

    if (n_first == 0 || n_first > DIGITS_MAX || strncmp(first_at + n_first, "..", 2) != 0)
        return 0;
    size_t n_last = count_digits(last_at);
    if (n_last == 0 || n_last > DIGITS_MAX || last_at + n_last != end)
        return 0;
    uint64_t value = strtoull(first_at, NULL, 10), last = strtoull(last_at, NULL, 10);
    bool is_padded = (*first_at == '0' && n_first > 1) || (*last_at == '0' && n_last > 1);
    int width = !is_padded ? 1 : (int)(n_first > n_last ? n_first : n_last);
    for (;;) {
        int n = snprintf(number, sizeof(number), "%0*" PRIu64, width, value);
        int rc = expand_choice(expansion, text, (size_t)(open - text), number, (size_t)n, end + 1);

        if (rc < 0 || value == last)
            return rc < 0 ? rc : 1;
        value = value < last ? value + 1 : value - 1;
    }
}

/* {a,b,...}; commas of braces inside belong to those. */
static int
expand_list(struct expansion *expansion, const char *text, const char *open, const char *end)
{
    const char *choice = open + 1;
    uint32_t depth = 0;

    for (const char *at = choice; at <= end; at++) {
        if (depth == 0 && (*at == ',' || at == end)) {
            int rc = expand_choice(expansion, text, (size_t)(open - text), choice,
                                   (size_t)(at - choice), end + 1);

            if (rc < 0)
                return rc;
            choice = at + 1;
        } else if (*at == '{') {
            depth++;
        } else if (*at == '}') {
            depth--;
        }
    }
    return 0;
}

/* Expands the first braces of a text, and those of what comes out; adds what has none. */
static int
expand(struct expansion *expansion, const char *text)
{
    const char *open = strchr(text, '{');

    if (!open) {
        if (strchr(text, '}'))
            return refuse(expansion, "has a } without its {");
        int rc = sti_shards_add(expansion->shards, text);
        return rc < 0 ? fail(expansion->pattern, rc, expansion->err) : 0;
    }
    const char *end = find_end(open);
    if (!end)
        return refuse(expansion, "has a { without its }");
    if (expansion->depth == BRACES_MAX)
        return refuse(expansion, "has more than 16 braces");
    expansion->depth++;
    int rc = expand_numbers(expansion, text, open, end);
    if (rc == 0)
        rc = expand_list(expansion, text, open, end);
    expansion->depth--;
    return rc < 0 ? rc : 0;
}

/* Whether a name is below its directory, as an index wants it. */
static bool
is_below(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || name[0] == '/' || name[n - 1] == '/')
        return false;
    for (const char *at = name; at; at = strchr(at, '/')) {
        at += *at == '/';
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return false;
    }
    return true;
}

int
sti_shards_expand(struct sti_shards *shards, const char *pattern, stk_error *err)
{
    struct expansion expansion = {.shards = shards, .pattern = pattern, .err = err};
    int rc = expand(&expansion, pattern);

    for (uint32_t at = 0; rc == 0 && at < shards->n; at++)
        if (!is_below(shards->names[at]))
            rc = refuse(&expansion, "has a name that is empty or leads out of its directory");
    return rc;
}

/* ---- listing ----------------------------------------------------------------------- */

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void
sort(struct sti_shards *shards, uint32_t first)
{
    if (shards->n > first)
        qsort(shards->names + first, shards->n - first, sizeof(*shards->names), compare_names);
}

struct listing {
    struct sti_shards *shards;
    const char *directory; /* what names are put behind, "" for none */
    const char *wildcard;  /* NULL: files that end in .tar */
    bool has_others;       /* a directory or an image */
};

static int
take_name(void *context, const char *name, unsigned char d_type)
{
    struct listing *listing = context;
    size_t n = strlen(name);

    if (sti_name_is_index(name))
        return 0;
    if (!listing->wildcard) {
        if (name[0] == '.' || strcmp(name, "lost+found") == 0)
            return 0;
        if (d_type == DT_DIR || sti_name_has_ending(name, n, STI_NAME_IMAGE_ENDINGS))
            listing->has_others = true;
        if (d_type == DT_DIR || !sti_name_has_ending(name, n, ".tar"))
            return 0;
    } else if (fnmatch(listing->wildcard, name, FNM_PERIOD) != 0) {
        return 0;
    }
    char *path = sti_path_join(listing->directory, name);
    int rc = path ? sti_shards_add(listing->shards, path) : -ENOMEM;
    sti_mem_free(path);
    return rc;
}

static int
list(struct listing *listing, struct sti_aio *aio, int dir_fd)
{
    struct sti_aio_op op = {.kind = STI_AIO_LIST,
                            .dir_fd = dir_fd,
                            .path = *listing->directory ? listing->directory : ".",
                            .list_fn = take_name,
                            .list_context = listing};
    uint32_t first = listing->shards->n;
    int rc = sti_aio_run(aio, &op);

    if (rc == 0)
        sort(listing->shards, first);
    return rc;
}

int
sti_shards_list(struct sti_shards *shards, struct sti_aio *aio, int dir_fd, const char *shown,
                bool *ret_is_alone, stk_error *err)
{
    struct listing listing = {.shards = shards, .directory = ""};
    int rc = list(&listing, aio, dir_fd);

    if (rc < 0)
        return fail(shown, rc, err);
    if (ret_is_alone)
        *ret_is_alone = shards->n > 0 && !listing.has_others;
    return 0;
}

/* Adds a name, or all that its wildcards stand for. */
static int
find_name(struct sti_shards *shards, struct sti_aio *aio, int dir_fd, const char *shown,
          const char *name, stk_error *err)
{
    const char *slash = strrchr(name, '/');
    const char *last = slash ? slash + 1 : name;
    uint32_t first = shards->n;
    int rc;

    if (name[strcspn(name, WILDCARDS)] == '\0') {
        rc = sti_shards_add(shards, name);
        return rc < 0 ? fail(shown, rc, err) : 0;
    }
    if (name + strcspn(name, WILDCARDS) < last)
        return sti_error_set_path(err, -EINVAL, name,
                                  "wildcards are for the last part of a path; list directories in "
                                  "braces: {a,b}/*.tar");
    char *directory = slash ? sti_path_directory(name) : sti_mem_strdup("");
    struct listing listing = {.shards = shards, .directory = directory, .wildcard = last};
    rc = directory ? list(&listing, aio, dir_fd) : -ENOMEM;
    sti_mem_free(directory);
    if (rc < 0)
        return fail(shown, rc, err);
    if (shards->n == first)
        return sti_error_set_path(err, -ENOENT, shown, "no file in it has a name like \"%.128s\"",
                                  name);
    return 0;
}

static int
check_unique(const struct sti_shards *shards, const char *shown, stk_error *err)
{
    char **sorted = sti_mem_new(shards->n, sizeof(*sorted));
    int rc = 0;

    if (!sorted)
        return fail(shown, -ENOMEM, err);
    memcpy(sorted, shards->names, shards->n * sizeof(*sorted));
    qsort(sorted, shards->n, sizeof(*sorted), compare_names);
    for (uint32_t at = 1; rc == 0 && at < shards->n; at++)
        if (strcmp(sorted[at - 1], sorted[at]) == 0)
            rc = sti_error_set_path(err, -EINVAL, shown, "the shard \"%.128s\" is listed twice",
                                    sorted[at]);
    sti_mem_free(sorted);
    return rc;
}

int
sti_shards_find(struct sti_shards *shards, struct sti_aio *aio, int dir_fd, const char *shown,
                const char *pattern, stk_error *err)
{
    struct sti_shards expanded = {0};
    int rc = sti_shards_expand(&expanded, sti_shards_pattern_part(pattern), err);

    for (uint32_t at = 0; rc == 0 && at < expanded.n; at++)
        rc = find_name(shards, aio, dir_fd, shown, expanded.names[at], err);
    sti_shards_fini(&expanded);
    return rc == 0 ? check_unique(shards, shown, err) : rc;
}

/* ---- comparing --------------------------------------------------------------------- */

int
sti_shards_compare(const struct sti_shards *shards, const struct sti_index *index,
                   const char *shown, stk_error *err)
{
    struct sti_index_source source;
    uint32_t n = index->head.sources;

    for (uint32_t at = 0; at < n && at < shards->n; at++) {
        if (sti_index_get_source(index, at, &source) < 0)
            return sti_error_set(err, STK_E_CORRUPT, "the index changed while it was read");
        if (strcmp(source.path, shards->names[at]) != 0)
            return sti_error_set_path(err, STK_E_STALE, shown,
                                      "other shards than were indexed: \"%.64s\" is where "
                                      "\"%.64s\" was" STI_INDEX_HINT,
                                      shards->names[at], source.path);
    }
    if (n != shards->n)
        return sti_error_set_path(err, STK_E_STALE, shown,
                                  "other shards than were indexed: %" PRIu32
                                  ", there were %" PRIu32 STI_INDEX_HINT,
                                  shards->n, n);
    return 0;
}
