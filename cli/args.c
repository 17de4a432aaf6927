/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option parser. getopt_long() is not used because it accepts abbreviations, which
 * make every later option a change of what scripts mean, and says nothing of values. One
 * thread.
 */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parse under way; what messages and helpers need. */
struct parse {
    const char *command;
    const struct cli_option *options;
    size_t n_options;
    uint64_t seen; /* a bit per option */
};

void
cli_put_text(FILE *to, const char *text)
{
    for (const char *at = text; *at; at++) {
        if (*at == '\n')
            (void)fputs("\\n", to);
        else if (iscntrl((unsigned char)*at))
            (void)fprintf(to, "\\x%02x", (unsigned)(unsigned char)*at);
        else
            (void)fputc(*at, to);
    }
}

__attribute__((format(printf, 2, 0))) static void
say(const char *command, const char *format, va_list args)
{
    char *text;

    (void)fflush(stdout); /* the message comes after what was printed; a failure shows later */
    (void)fprintf(stderr, "stoker %s: ", command);
    if (vasprintf(&text, format, args) < 0) {
        (void)fputs("no memory for a message\n", stderr);
        return;
    }
    cli_put_text(stderr, text);
    (void)fputc('\n', stderr);
    free(text);
}

static int
say_help(const char *command)
{
    (void)fprintf(stderr, "Try 'stoker help %s'.\n", command);
    return CLI_USAGE;
}

int
cli_usage_error(const char *command, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(command, format, args);
    va_end(args);
    return say_help(command);
}

int
cli_error(const char *command, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(command, format, args);
    va_end(args);
    return CLI_FAILED;
}

int
cli_refused(const char *command, const char *what, int rc, const stk_error *err)
{
    const char *code = stk_strerror(rc);
    bool has_code = strstr(err->message, code) != NULL;

    (void)cli_error(command, "%s%s%s%s%s%s%s%s", what ? what : "", what ? ": " : "", err->path,
                    err->path[0] ? ": " : "", err->message, has_code ? "" : " (",
                    has_code ? "" : code, has_code ? "" : ")");
    return rc == -EINVAL && !err->path[0] ? say_help(command) : CLI_FAILED;
}

int
cli_finish(const char *command)
{
    if (fflush(stdout) || ferror(stdout))
        return cli_error(command, "cannot write to standard output: %s", strerrordesc_np(errno));
    return CLI_OK;
}

/* Decimal digits and nothing else. Returns whether they make a uint64_t; *ret_end is
 * where they end. */
static bool
read_digits(const char *text, uint64_t *ret_value, const char **ret_end)
{
    const char *at = text;
    uint64_t value = 0;

    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');

        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *ret_value = value;
    *ret_end = at;
    return at != text;
}

/* A number with an optional suffix. Returns whether it is one. */
static bool
read_size(const char *text, uint64_t *ret_value)
{
    static const char suffixes[] = "KMGT";
    const char *end;
    uint64_t value;
    uint32_t shift = 0;

    if (!read_digits(text, &value, &end))
        return false;
    if (*end) {
        const char *suffix = strchr(suffixes, *end);

        if (!suffix || end[1])
            return false;
        shift = 10 * (uint32_t)(suffix - suffixes + 1);
    }
    if (value > UINT64_MAX >> shift)
        return false;
    *ret_value = value << shift;
    return true;
}

static int
set_unsigned(const struct parse *parse, const struct cli_option *option, const char *text)
{
    uint64_t high = option->high ? option->high : UINT64_MAX;
    uint64_t value = 0;
    const char *end = "";
    bool good = option->kind == CLI_SIZE ? read_size(text, &value)
                                         : read_digits(text, &value, &end) && !*end;

    if (!good || value < option->low || value > high) {
        (void)cli_usage_error(
            parse->command, "--%s is '%s'; it must be %s from %" PRIu64 " to %" PRIu64,
            option->name, text,
            option->kind == CLI_SIZE ? "a number of bytes (suffixes K, M, G, T allowed)"
                                     : "a number",
            option->low, high);
        return -1;
    }
    *(uint64_t *)option->value = value;
    return 0;
}

static int
set_signed(const struct parse *parse, const struct cli_option *option, const char *text)
{
    bool negative = *text == '-';
    uint64_t limit = (uint64_t)INT64_MAX + negative;
    uint64_t value;
    const char *end;

    if (!read_digits(text + (*text == '-' || *text == '+'), &value, &end) || *end ||
        value > limit) {
        (void)cli_usage_error(parse->command,
                              "--%s is '%s'; it must be a number from %" PRId64 " to %" PRId64,
                              option->name, text, INT64_MIN, INT64_MAX);
        return -1;
    }
    /* Through unsigned arithmetic, since the least number has no positive counterpart. */
    *(int64_t *)option->value = (int64_t)(negative ? 0 - value : value);
    return 0;
}

static int
set_choice(const struct parse *parse, const struct cli_option *option, const char *text)
{
    char allowed[256] = "";
    size_t used = 0;

    for (const struct cli_choice *choice = option->choices; choice->word; choice++) {
        if (!strcmp(choice->word, text)) {
            *(uint32_t *)option->value = choice->value;
            return 0;
        }
        int n = snprintf(allowed + used, sizeof(allowed) - used, "%s%s", used ? ", " : "",
                         choice->word);
        if (n > 0 && (size_t)n < sizeof(allowed) - used)
            used += (size_t)n;
    }
    (void)cli_usage_error(parse->command, "--%s is '%s'; it must be one of: %s", option->name, text,
                          allowed);
    return -1;
}

static int
add_text(const struct parse *parse, const struct cli_option *option, const char *text)
{
    struct cli_texts *texts = option->value;

    if (texts->count == CLI_MAX_TEXTS) {
        (void)cli_usage_error(parse->command, "--%s is given more than %d times", option->name,
                              CLI_MAX_TEXTS);
        return -1;
    }
    texts->items[texts->count++] = text;
    return 0;
}

static int
set_value(const struct parse *parse, const struct cli_option *option, const char *text)
{
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)option->value = true;
        return 0;
    case CLI_U64:
    case CLI_SIZE:
        return set_unsigned(parse, option, text);
    case CLI_I64:
        return set_signed(parse, option, text);
    case CLI_CHOICE:
        return set_choice(parse, option, text);
    case CLI_TEXT:
        *(const char **)option->value = text;
        return 0;
    case CLI_TEXTS:
        return add_text(parse, option, text);
    }
    return -1;
}

/* The option that an argument "--name" or "--name=value" names, or NULL after saying
 * so. */
static const struct cli_option *
find_option(const struct parse *parse, const char *arg)
{
    size_t n = strcspn(arg + 2, "=");

    for (size_t i = 0; i < parse->n_options; i++)
        if (strlen(parse->options[i].name) == n && !strncmp(parse->options[i].name, arg + 2, n))
            return &parse->options[i];
    (void)cli_usage_error(parse->command, "unknown option %.*s", (int)n + 2, arg);
    return NULL;
}

/* Reads the option in argv[at]. Returns how many arguments it took, or -1. */
static int
take_option(struct parse *parse, char **argv, int at)
{
    const struct cli_option *option = find_option(parse, argv[at]);
    const char *inline_value = strchr(argv[at], '=');
    const char *value = inline_value ? inline_value + 1 : argv[at + 1];

    if (!option)
        return -1;
    uint64_t bit = UINT64_C(1) << (option - parse->options);
    if (parse->seen & bit && option->kind != CLI_TEXTS) {
        (void)cli_usage_error(parse->command, "--%s is given twice", option->name);
        return -1;
    }
    parse->seen |= bit;
    if (option->kind == CLI_FLAG ? inline_value != NULL : value == NULL) {
        (void)cli_usage_error(parse->command, "--%s %s", option->name,
                              inline_value ? "takes no value" : "needs a value");
        return -1;
    }
    if (set_value(parse, option, value))
        return -1;
    if (option->given)
        *option->given = true;
    return inline_value || option->kind == CLI_FLAG ? 1 : 2;
}

int
cli_parse(int argc, char **argv, const struct cli_option *options, size_t n_options,
          const char **words, int max_words)
{
    struct parse parse = {argv[0], options, n_options, 0};
    bool only_words = false;
    int n_words = 0;

    for (int i = 1; i < argc;) {
        if (!only_words && !strcmp(argv[i], "--")) {
            only_words = true;
            i++;
        } else if (!only_words && !strncmp(argv[i], "--", 2)) {
            int taken = take_option(&parse, argv, i);

            if (taken < 0)
                return -1;
            i += taken;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            (void)cli_usage_error(parse.command, "unknown option %s; options begin with --",
                                  argv[i]);
            return -1;
        } else if (n_words == max_words) {
            (void)cli_usage_error(parse.command, "unexpected argument '%s'", argv[i]);
            return -1;
        } else {
            words[n_words++] = argv[i++];
        }
    }
    return n_words;
}
