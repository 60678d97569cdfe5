/* print.c - the settings as they count, in a form that is read again: texts as written, defaults where nothing was. */
#include "server/conf/section.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static void print_text(struct buf *out, const char *text)
{
    buf_byte(out, '"');
    for (; *text != '\0'; text++) {
        if (*text == '\n' || *text == '\r' || *text == '\t') {
            buf_addf(out, "\\%c", *text == '\n' ? 'n' : *text == '\r' ? 'r' : 't');
            continue;
        }
        if (strchr("\"\\$", *text) != NULL) {
            buf_byte(out, '\\');
        }
        buf_byte(out, (uint8_t)*text);
    }
    buf_byte(out, '"');
}

/* A path that is still relative counts from here, but the print may be read from elsewhere. */
static bool counts_from_here(const struct setting *set, const char *text)
{
    return set->kind == KIND_PATH ||
           (set->kind == KIND_FILE && strncmp(text, "credential:", 11) != 0) ||
           (set->kind == KIND_LOG && strcmp(text, "stderr") != 0 && strcmp(text, "none") != 0);
}

static void print_value(struct buf *out, const struct setting *set, const char *text)
{
    char path[PATH_MAX * 2];
    size_t n;

    if (text[0] == '/' || !counts_from_here(set, text) || getcwd(path, PATH_MAX) == NULL) {
        print_text(out, text);
        return;
    }
    n = strlen(path);
    snprintf(path + n, sizeof(path) - n, "/%s", text);
    print_text(out, path);
}

static void print_setting(struct buf *out, const char *indent, const struct setting *set,
                          const struct settings_given *g, bool written)
{
    if (kind_is_list(set->kind)) {
        if (!written) {
            return;
        }
        buf_addf(out, "%s%s = {", indent, set->key);
        for (; g != NULL; g = g->next) {
            print_text(out, g->text);
            buf_str(out, g->next != NULL ? ", " : "");
        }
        buf_str(out, "}\n");
        return;
    }
    if (g == NULL && set->def == NULL) {
        return;
    }
    buf_addf(out, "%s%s = ", indent, set->key);
    print_value(out, set, g != NULL ? g->text : set->def);
    buf_byte(out, '\n');
}

static void print_section(struct buf *out, const struct settings_node *nd, unsigned depth)
{
    static const char *const indents[] = {"", "    ", "        "};
    const struct section_info *info = section_info((enum section)nd->section);
    size_t n;
    const struct setting *set = section_settings((enum section)nd->section, &n);

    CHECK(depth < ARRAY_LEN(indents));
    for (size_t i = 0; i < n; i++) {
        print_setting(out, indents[depth], &set[i], nd->given[i], nd->written[i]);
    }
    for (const struct settings_node *c = nd->child; c != NULL; c = c->next) {
        info = section_info((enum section)c->section);
        buf_addf(out, "%s%s ", indents[depth], info->name);
        if (info->titled[0] != '\0') {
            print_text(out, c->title);
            buf_byte(out, ' ');
        }
        buf_str(out, "{\n");
        print_section(out, c, depth + 1);
        buf_addf(out, "%s}\n", indents[depth]);
    }
}

void section_print(const struct settings_node *root, struct buf *out)
{
    print_section(out, root, 0);
}
