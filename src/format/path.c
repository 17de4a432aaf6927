/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text. Pure; any thread. */
#include "format/path.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"

static char *
copy(const char *from, size_t n_bytes)
{
    char *text = sti_mem_new(n_bytes + 1, 1);

    if (text)
        memcpy(text, from, n_bytes);
    return text;
}

/* The length without trailing slashes, but for that of the root. */
static size_t
trimmed(const char *path, size_t n_bytes)
{
    while (n_bytes > 1 && path[n_bytes - 1] == '/')
        n_bytes--;
    return n_bytes;
}

/* Where the last part begins. */
static size_t
last_part(const char *path, size_t n_bytes)
{
    while (n_bytes > 0 && path[n_bytes - 1] != '/')
        n_bytes--;
    return n_bytes;
}

char *
sti_path_join(const char *directory, const char *name)
{
    size_t n_before = strlen(directory), n_name = strlen(name);
    char *text = sti_mem_new(n_before + 1 + n_name + 1, 1);

    if (!text)
        return NULL;
    memcpy(text, directory, n_before);
    if (n_before > 0 && directory[n_before - 1] != '/')
        text[n_before++] = '/';
    memcpy(text + n_before, name, n_name);
    return text;
}

char *
sti_path_directory(const char *path)
{
    size_t n = trimmed(path, strlen(path));
    size_t begin = last_part(path, n);

    if (begin == 0)
        return copy(".", 1);
    return copy(path, trimmed(path, begin));
}

char *
sti_path_name(const char *path)
{
    size_t n = trimmed(path, strlen(path));
    size_t begin = last_part(path, n);

    return copy(path + begin, n - begin);
}
