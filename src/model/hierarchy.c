/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing the tiers of a node, and dividing them. Pure. */
#include "model/hierarchy.h"

#include <errno.h>
#include <inttypes.h>
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

static int
parse_ram(struct sti_hierarchy *hierarchy, const char *part, size_t n_chars, stk_error *err)
{
    if (hierarchy->ram_bytes > 0)
        return sti_error_set(err, -EINVAL, "tiers: ram is named twice, again by '%.*s'",
                             (int)n_chars, part);
    if (sti_size_parse(&hierarchy->ram_bytes, part + 4, n_chars - 4) < 0 ||
        hierarchy->ram_bytes == 0)
        return sti_error_set(err, -EINVAL,
                             "tiers: '%.*s' needs a size of at least 1, with K, M, G or T",
                             (int)n_chars, part);
    return 0;
}

static int
parse_ssd(struct sti_hierarchy *hierarchy, const char *part, size_t n_chars, stk_error *err)
{
    const char *path = part + 4;
    const char *colon = memrchr(path, ':', n_chars - 4);
    struct sti_ssd_config *place = &hierarchy->ssds[hierarchy->n_ssds];

    if (!colon || colon == path)
        return sti_error_set(err, -EINVAL, "tiers: '%.*s' is not ssd:PATH:SIZE", (int)n_chars,
                             part);
    if (hierarchy->n_ssds == STI_SSDS_MAX)
        return sti_error_set(err, -EINVAL, "tiers: more than %d ssd directories", STI_SSDS_MAX);
    size_t n_path = (size_t)(colon - path);
    if (n_path >= sizeof(place->path))
        return sti_error_set(err, -EINVAL, "tiers: the path of an ssd has %zu characters", n_path);
    if (sti_size_parse(&place->n_bytes, colon + 1, n_chars - 4 - n_path - 1) < 0 ||
        place->n_bytes == 0)
        return sti_error_set(err, -EINVAL,
                             "tiers: '%.*s' needs a size of at least 1, with K, M, G or T",
                             (int)n_chars, part);
    memcpy(place->path, path, n_path);
    place->path[n_path] = '\0';
    for (uint32_t at = 0; at < hierarchy->n_ssds; at++)
        if (strcmp(hierarchy->ssds[at].path, place->path) == 0)
            return sti_error_set(err, -EINVAL, "tiers: ssd %s is named twice", place->path);
    hierarchy->n_ssds++;
    return 0;
}

int
sti_hierarchy_parse(struct sti_hierarchy *ret_hierarchy, const char *text, stk_error *err)
{
    struct sti_hierarchy hierarchy = {0};
    const char *at = text ? text : "";
    int rc = 0;

    while (rc == 0) {
        at += strspn(at, " \t");
        size_t n_chars = strcspn(at, " \t");
        if (n_chars == 0)
            break;
        if (n_chars >= 4 && strncmp(at, "ram:", 4) == 0)
            rc = parse_ram(&hierarchy, at, n_chars, err);
        else if (n_chars >= 4 && strncmp(at, "ssd:", 4) == 0)
            rc = parse_ssd(&hierarchy, at, n_chars, err);
        else
            rc = sti_error_set(err, -EINVAL, "tiers: '%.*s' is not ram:SIZE or ssd:PATH:SIZE",
                               (int)n_chars, at);
        at += n_chars;
    }
    if (rc == 0)
        *ret_hierarchy = hierarchy;
    return rc;
}

int
sti_hierarchy_divide(struct sti_hierarchy *hierarchy, uint32_t n, stk_error *err)
{
    if (hierarchy->n_ssds > 0 && n > STI_SSD_SLOTS_MAX)
        return sti_error_set(err, -E2BIG,
                             "tiers: %" PRIu32 " ranks of this machine share %s, and %u are the "
                             "most that can share an SSD tier; leave it out",
                             n, hierarchy->ssds[0].path, STI_SSD_SLOTS_MAX);
    hierarchy->ram_bytes /= n;
    for (uint32_t at = 0; at < hierarchy->n_ssds; at++)
        hierarchy->ssds[at].n_bytes = (hierarchy->ssds[at].n_bytes + n - 1) / n;
    return 0;
}
