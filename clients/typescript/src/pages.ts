/** A page of a set. */
export interface Page<T> {
  items: T[];
  total: number;
  cursor?: string | undefined;
  incomplete?: boolean | undefined;
  reason?: string | undefined;
}

/**
 * The items of a set, page by page. Iterate over it once:
 *
 *     const members = skein.members({set});
 *     for await (const did of members) …
 *     if (members.incomplete) console.log(members.reason);
 */
export class Pages<T> implements AsyncIterableIterator<T> {
  /** The number of items of the set; undefined before the first page. */
  total: number | undefined;
  /** Whether the pages so far may lack items. */
  incomplete = false;
  /** Why they may. */
  reason: string | undefined;
  private readonly items: AsyncGenerator<T, void, undefined>;

  constructor(page: (cursor: string | undefined) => Promise<Page<T>>) {
    this.items = this.walk(page);
  }

  private async *walk(get: (cursor: string | undefined) => Promise<Page<T>>): AsyncGenerator<T, void, undefined> {
    for (let cursor: string | undefined; ; ) {
      const page = await get(cursor);
      this.total = page.total;
      if (page.incomplete) {
        this.incomplete = true;
        this.reason = page.reason;
      }
      yield* page.items;
      if (!(cursor = page.cursor)) return;
    }
  }

  next(): Promise<IteratorResult<T, void>> {
    return this.items.next();
  }

  return(): Promise<IteratorResult<T, void>> {
    return this.items.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
