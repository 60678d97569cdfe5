/* list.h - doubly linked, intrusive, circular lists: the node is a field of your struct. No
 * allocation, O(1) removal.
 *
 * A zeroed node is in no list (list_linked is false). A head needs list_init().
 */
#ifndef COMMON_BASE_LIST_H
#define COMMON_BASE_LIST_H

#include "common/base/check.h"

struct list {
    struct list *next;
    struct list *prev;
};

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

static inline bool list_linked(const struct list *node)
{
    return node->next != NULL;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    CHECK(!list_linked(node));
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_push_front(struct list *head, struct list *node)
{
    CHECK(!list_linked(node));
    node->next = head->next;
    node->prev = head;
    head->next->prev = node;
    head->next = node;
}

static inline void list_remove(struct list *node)
{
    CHECK(list_linked(node));
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->next = node->prev = NULL;
}

static inline void list_remove_if(struct list *node)
{
    if (list_linked(node)) {
        list_remove(node);
    }
}

static inline struct list *list_pop_front(struct list *head)
{
    struct list *n = head->next;
    if (n == head) {
        return NULL;
    }
    list_remove(n);
    return n;
}

#define LIST_ITEM(node, type, field) CONTAINER_OF(node, type, field)
/* `it` may be removed inside the body, its successor may not. */
#define LIST_EACH(head, it)                                                                        \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                      \
         it = it##_next, it##_next = it->next)

#endif
