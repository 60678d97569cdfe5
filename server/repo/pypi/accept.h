/* accept.h - the rendering of a simple page that a client gets: PEP 691's content negotiation.
 *
 * owns     nothing
 * threads  any; pure
 */
#ifndef SERVER_REPO_PYPI_ACCEPT_H
#define SERVER_REPO_PYPI_ACCEPT_H

#include "common/base/slice.h"

enum page_format {
    PAGE_NONE, /* the client accepts none of ours: 406 */
    PAGE_JSON, /* application/vnd.pypi.simple.v1+json */
    PAGE_HTML, /* application/vnd.pypi.simple.v1+html */
    PAGE_TEXT, /* text/html: the same bytes under the type that browsers know */
};

/* accept: all Accept fields joined; p == NULL: none. query: a ?format= in it (PEP 691) overrides
 * them. */
enum page_format page_format_of(struct slice accept, struct slice query);
struct slice page_format_type(enum page_format f);
/* Short names, for struct plan's variant, and back. */
struct slice page_format_name(enum page_format f);
enum page_format page_format_named(struct slice name);

#endif
