/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing the tiers of a node. Pure. */
#include "model/hierarchy.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

int
sti_size_parse(uint64_t *ret_bytes, const char *text, uint64_t n_chars)
{
    static const char suffixes[] = "KMGT";
    uint64_t value = 0;
    uint64_t at = 0;

    for (; at < n_chars && text[at] >= '0' && text[at] <= '9'; at++) {
        uint64_t digit = (uint64_t)(text[at] - '0');

        if (value > (UINT64_MAX - digit) / 10)
            return -EINVAL;
        value = value * 10 + digit;
    }
    if (at == 0 || n_chars - at > 1)
        return -EINVAL;
    if (at < n_chars) {
        const char *suffix = memchr(suffixes, text[at], sizeof(suffixes) - 1);

        if (!suffix)
            return -EINVAL;
        uint32_t shift = 10 * (uint32_t)(suffix - suffixes + 1);
        if (value > UINT64_MAX >> shift)
            return -EINVAL;
        value <<= shift;
    }
    *ret_bytes = value;
    return 0;
}

int
sti_hierarchy_parse(struct sti_hierarchy *ret_hierarchy, const char *text, stk_error *err)
{
    struct sti_hierarchy hierarchy = {0};
    const char *at = text ? text : "";

    for (;;) {
        at += strspn(at, " \t");
        size_t n_chars = strcspn(at, " \t");
        if (n_chars == 0)
            break;
        if (strncmp(at, "ram:", 4) != 0)
            return sti_error_set(err, -EINVAL, "tiers: '%.*s' is not ram:SIZE", (int)n_chars, at);
        if (hierarchy.ram_bytes > 0)
            return sti_error_set(err, -EINVAL, "tiers: ram is named twice in '%s'", text);
        if (sti_size_parse(&hierarchy.ram_bytes, at + 4, n_chars - 4) < 0 ||
            hierarchy.ram_bytes == 0)
            return sti_error_set(err, -EINVAL,
                                 "tiers: '%.*s' needs a size of at least 1, with K, M, G or T",
                                 (int)n_chars, at);
        at += n_chars;
    }
    *ret_hierarchy = hierarchy;
    return 0;
}
