/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenario files: one JSON object of keys and values, checked by the library key by key.
 * The parser of jansson says where a file is no JSON; where a value is wrong, the line is
 * found again in the text, which is valid JSON by then. One thread.
 */
#include "scenario_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define VALUE_MAX 1024

struct load {
    const char *path;
    const char *text;
    char *message;
    size_t n_message;
};

/* Where the string that begins at a quote ends: its closing quote. */
static const char *
string_end(const char *quote)
{
    const char *at = quote + 1;

    for (; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return at;
}

/* The line, from 1 on, on which the outermost object has a key. */
static unsigned
line_of(const char *text, const char *key)
{
    unsigned line = 1;
    unsigned depth = 0;
    size_t n_key = strlen(key);

    for (const char *at = text; *at; at++) {
        line += *at == '\n';
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        if (*at != '"')
            continue;
        const char *end = string_end(at);
        size_t n_chars = (size_t)(end - at) - 1;
        if (!*end)
            return line;
        if (depth == 1 && n_chars == n_key && !memcmp(at + 1, key, n_key) &&
            end[1 + strspn(end + 1, " \t\r\n")] == ':')
            return line;
        at = end;
    }
    return line;
}

static int
say(const struct load *load, const char *key, const char *what)
{
    (void)snprintf(load->message, load->n_message, "%s:%u: %s", load->path,
                   line_of(load->text, key), what);
    return -1;
}

/* [[1, 330], [2, 730]] as "1:330 2:730". */
static int
curve_text(const json_t *value, char *text)
{
    size_t used = 0;
    size_t idx;
    json_t *point;

    json_array_foreach(value, idx, point)
    {
        const json_t *x = json_array_get(point, 0);
        const json_t *y = json_array_get(point, 1);

        if (json_array_size(point) != 2 || !json_is_number(x) || !json_is_number(y))
            return -1;
        int n = snprintf(text + used, VALUE_MAX - used, "%s%.15g:%.15g", used ? " " : "",
                         json_number_value(x), json_number_value(y));
        if (n < 0 || (size_t)n >= VALUE_MAX - used)
            return -1;
        used += (size_t)n;
    }
    text[used] = '\0';
    return 0;
}

/* A value as --set would be given it. Returns -1 where it has no such form. */
static int
value_text(const json_t *value, char *text)
{
    int n;

    if (json_is_array(value))
        return curve_text(value, text);
    if (json_is_string(value))
        n = snprintf(text, VALUE_MAX, "%s", json_string_value(value));
    else if (json_is_integer(value))
        n = snprintf(text, VALUE_MAX, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        n = snprintf(text, VALUE_MAX, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        n = snprintf(text, VALUE_MAX, "%s", json_is_true(value) ? "yes" : "no");
    else
        return -1;
    return n < 0 || n >= VALUE_MAX ? -1 : 0;
}

/* "; it must be RANGE" for a key that there is, else "". */
static const char *
range_text(const char *key, char *text, size_t n_text)
{
    stk_scenario_key_info info;

    text[0] = '\0';
    for (uint32_t idx = 0; stk_scenario_key(idx, &info) == 0; idx++)
        if (!strcmp(info.key, key))
            (void)snprintf(text, n_text, "; it must be %s", info.range);
    return text;
}

/* Keys that contradict each other: the message begins with the one to change, which may
 * have its default. */
static int
check_keys(const struct load *load, const json_t *root, const stk_scenario *scenario)
{
    char key[64];
    stk_error err;

    if (stk_scenario_check(scenario, &err) == 0)
        return 0;
    (void)snprintf(key, sizeof(key), "%.*s", (int)strcspn(err.message, " "), err.message);
    if (json_object_get(root, key))
        return say(load, key, err.message);
    (void)snprintf(load->message, load->n_message, "%s: %s", load->path, err.message);
    return -1;
}

static int
set_keys(const struct load *load, json_t *root, stk_scenario *scenario)
{
    const char *key;
    json_t *value;

    json_object_foreach(root, key, value)
    {
        char text[VALUE_MAX];
        char what[STK_ERROR_MESSAGE_SIZE + 160];
        char range[160];
        stk_error err;

        if (!strcmp(key, "base"))
            continue;
        if (value_text(value, text)) {
            (void)snprintf(what, sizeof(what),
                           "%.80s is neither a number, a word nor a list of [x, y] pairs%s", key,
                           range_text(key, range, sizeof(range)));
            return say(load, key, what);
        }
        if (stk_scenario_set(scenario, key, text, &err))
            return say(load, key, err.message);
    }
    return 0;
}

static int
make_scenario(const struct load *load, json_t *root, stk_scenario **ret_scenario)
{
    const json_t *base = json_object_get(root, "base");
    stk_scenario *scenario;
    stk_error err;

    if (!json_is_object(root))
        return say(load, "", "a scenario is a JSON object");
    if (base && !json_is_string(base))
        return say(load, "base", "base must be the name of a built-in scenario");
    if (stk_scenario_new(&scenario, json_string_value(base), &err))
        return say(load, "base", err.message);
    if (set_keys(load, root, scenario) || check_keys(load, root, scenario)) {
        stk_scenario_free(scenario);
        return -1;
    }
    *ret_scenario = scenario;
    return 0;
}

/* Reads what a file has into text, FILE_BYTES_MAX + 1 bytes, and ends it by a zero.
 * Returns 0 or an error number; EILSEQ: there is a zero in it. */
static int
read_into(const char *path, char *text)
{
    FILE *file = fopen(path, "re");
    size_t n_bytes;
    int error;

    if (!file)
        return errno;
    n_bytes = fread(text, 1, FILE_BYTES_MAX + 1, file);
    error = ferror(file) ? errno : 0;
    (void)fclose(file); /* it was only read */
    if (error)
        return error;
    if (n_bytes > FILE_BYTES_MAX)
        return EFBIG;
    text[n_bytes] = '\0';
    return strlen(text) == n_bytes ? 0 : EILSEQ;
}

/* The whole file as a text. Returns NULL with errno set. */
static char *
read_text(const char *path)
{
    char *text = calloc(1, FILE_BYTES_MAX + 1);
    int error = text ? read_into(path, text) : ENOMEM;

    if (!error)
        return text;
    free(text);
    errno = error;
    return NULL;
}

int
cli_scenario_parse(const char *path, const char *text, stk_scenario **ret_scenario, char *message,
                   size_t n_message)
{
    const struct load load = {path, text, message, n_message};
    json_error_t error;
    int rc;

    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (root) {
        rc = make_scenario(&load, root, ret_scenario);
    } else {
        (void)snprintf(message, n_message, "%s:%d: %s", path, error.line, error.text);
        rc = -1;
    }
    json_decref(root);
    return rc;
}

int
cli_scenario_load(const char *path, stk_scenario **ret_scenario, char *message, size_t n_message)
{
    char *text = read_text(path);

    if (!text) {
        (void)snprintf(message, n_message, "cannot read %s: %s", path,
                       errno == EILSEQ ? "it has a byte that is zero" : strerrordesc_np(errno));
        return -1;
    }
    int rc = cli_scenario_parse(path, text, ret_scenario, message, n_message);
    free(text);
    return rc;
}
