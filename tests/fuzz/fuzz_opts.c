/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option strings: tiers and emulated storage. The first byte says which parser the rest
 * goes to. Beside not crashing: what is refused is refused with -EINVAL and words,
 * results are within what the option's documentation promises, and parsing the same text
 * again gives the same.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/shape.h"
#include "model/hierarchy.h"
#include "fuzz.h"

#define MAX_TEXT_BYTES 1024

static void
must_be_explained(int rc, const stk_error *err)
{
    must(rc == -EINVAL && err->code == rc && err->message[0] != '\0');
    must(memchr(err->message, '\0', sizeof(err->message)) != NULL);
}

static void
try_tiers(const char *text)
{
    static struct sti_hierarchy hierarchy, again; /* several KiB */
    stk_error err;
    int rc = sti_hierarchy_parse(&hierarchy, text, &err);

    must(sti_hierarchy_parse(&again, text, NULL) == rc);
    if (rc < 0) {
        must_be_explained(rc, &err);
        return;
    }
    must(hierarchy.ram_bytes == again.ram_bytes);
    must((hierarchy.ram_bytes == 0 && hierarchy.n_ssds == 0) ==
         (text[strspn(text, " \t")] == '\0'));
    must(hierarchy.n_ssds == again.n_ssds && hierarchy.n_ssds <= STI_SSDS_MAX);
    for (uint32_t at = 0; at < hierarchy.n_ssds; at++)
        must(hierarchy.ssds[at].n_bytes > 0 && hierarchy.ssds[at].path[0] != '\0' &&
             strstr(text, hierarchy.ssds[at].path) != NULL);
}

/* A size is exactly its digits times its suffix, and is not read beyond its length. */
static void
try_size(const char *text, size_t n_chars)
{
    uint64_t whole = 0, value = 0;
    char *exact = malloc(n_chars ? n_chars : 1); /* no terminator behind it */

    must(exact != NULL);
    memcpy(exact, text, n_chars);
    int rc = sti_size_parse(&whole, exact, n_chars);
    must(rc == 0 || rc == -EINVAL);
    if (rc == 0 && strchr("KMGT", text[n_chars - 1])) {
        must(sti_size_parse(&value, exact, n_chars - 1) == 0);
        must(whole % 1024 == 0 && whole / 1024 >= value);
    }
    free(exact);
}

/* A device is done with an operation no sooner than it arrived, and time does not run
 * back. */
static void
try_shape(const char *text)
{
    struct sti_shape *shape = NULL;
    stk_error err;
    int rc = sti_shape_new(&shape, text, &err);

    if (rc < 0) {
        must_be_explained(rc, &err);
        must(shape == NULL);
        return;
    }
    uint64_t last_ns = 0;
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t arrival_ns = UINT64_C(1000000000) * (1 + i);
        uint64_t done_ns = sti_shape_charge(shape, false, UINT64_C(1) << (10 * i), arrival_ns);

        must(done_ns >= arrival_ns && done_ns >= last_ns);
        last_ns = done_ns;
        must(sti_shape_charge(shape, true, 4096, arrival_ns) >= arrival_ns);
    }
    sti_shape_free(shape);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    char text[MAX_TEXT_BYTES];

    if (n_bytes == 0 || n_bytes > sizeof(text))
        return 0;
    memcpy(text, bytes + 1, n_bytes - 1);
    text[n_bytes - 1] = '\0';
    switch (bytes[0]) {
    case 't':
        try_tiers(text);
        break;
    case 'z':
        try_size(text, n_bytes - 1);
        break;
    case 's':
        try_shape(text);
        break;
    default:
        break;
    }
    return 0;
}
