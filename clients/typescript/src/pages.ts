/** A page of an answer. */
interface Page {
  total?: number;
  cursor?: string | null;
  handles?: Record<string, string>;
  incomplete?: boolean;
  reason?: string;
}

/**
 * The items of an answer, page by page. Iterate over it once:
 *
 *     const members = skein.members({set});
 *     for await (const did of members) …
 *     if (members.incomplete) console.log(members.reason);
 */
export class Pages<T, P extends object = object> implements AsyncIterableIterator<T> {
  /** The number of items of all pages; undefined before the first page, and if the server does not say. */
  total: number | undefined;
  /** Whether the pages so far may lack items. */
  incomplete = false;
  /** Why they may. */
  reason: string | undefined;
  /** With names: the handles of accounts, and of the authors of records, on the pages so far. */
  readonly handles: Record<string, string> = {};
  /** The last page, as the method returns it. */
  page: P | undefined;
  private readonly get: (asked: {limit: number; cursor?: string}) => Promise<object>;
  private readonly field: string;
  private readonly most: number;
  private items: T[] = [];
  private taken = 0;
  private ended = false;
  private last: Promise<unknown> = Promise.resolve();

  /** get returns a page of at most most items, which are in field. */
  constructor(get: (asked: {limit: number; cursor?: string}) => Promise<object>, field: string, most: number) {
    this.get = get;
    this.field = field;
    this.most = most;
  }

  /** Returns the next n items, or as many as there are. It asks the server for no more. */
  async first(n: number): Promise<T[]> {
    const found: T[] = [];
    while (found.length < n) {
      const {done, value} = await this.one(n - found.length);
      if (done) break;
      found.push(value);
    }
    return found;
  }

  next(): Promise<IteratorResult<T, void>> {
    return this.one(this.most);
  }

  async return(): Promise<IteratorResult<T, void>> {
    return {done: true, value: undefined};
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Returns the next item, from a page of n items if it needs another. */
  private one(n: number): Promise<IteratorResult<T, void>> {
    const result = this.last.then(async (): Promise<IteratorResult<T, void>> => {
      while (this.taken === this.items.length) {
        if (this.ended) return {done: true, value: undefined};
        await this.turn(Math.min(n, this.most));
      }
      return {done: false, value: this.items[this.taken++]!};
    });
    this.last = result.catch(() => {}); // one page at a time
    return result;
  }

  private async turn(limit: number): Promise<void> {
    const {cursor} = (this.page ?? {}) as Page;
    const page = await this.get({limit, ...(cursor && {cursor})}) as Page;
    this.page = page as P;
    this.total = page.total;
    Object.assign(this.handles, page.handles);
    if (page.incomplete) {
      this.incomplete = true;
      this.reason = page.reason;
    }
    this.items = (page as Record<string, T[]>)[this.field] ?? [];
    this.taken = 0;
    this.ended = !page.cursor;
  }
}
