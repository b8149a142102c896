/** One open thread: its state, and the streams that keep it in step with the server and with other tabs.
 *
 * A hidden tab holds no connection, since browsers allow few to one server; shown again, it reads what it missed.
 */
import { ApiError, threadApi, type ThreadApi } from '../api'
import type { RunEvent, ThreadNews } from '../types'
import { EMPTY, over, type Thread, withEvents, withOlder, withoutRun, withRun, withTail } from './turns'

export type Link = 'connecting' | 'open' | 'lost'

export interface Snapshot {
  thread: Thread
  loaded: boolean
  missing: boolean
  link: Link
  error: ApiError | null
  loadingOlder: boolean
}

const PAGE = 100
const START: Snapshot = { thread: EMPTY, loaded: false, missing: false, link: 'connecting', error: null, loadingOlder: false }

export class ThreadStore {
  readonly api: ThreadApi
  private snapshot: Snapshot = START
  private readonly listeners = new Set<() => void>()
  private readonly followed = new Map<string, EventSource>()
  private readonly arrived = new Map<string, RunEvent[]>()
  private feed: EventSource | null = null
  private frame = 0
  private retry = 0
  private open = false

  constructor(
    workspace: string,
    thread: string,
    /** Told of each piece of news, so that panels read anew what changed. */
    private readonly news: (news: ThreadNews) => void,
  ) {
    this.api = threadApi(workspace, thread)
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  get = (): Snapshot => this.snapshot

  start(): void {
    this.open = true
    document.addEventListener('visibilitychange', this.seen)
    this.connect()
    void this.readTail()
  }

  stop(): void {
    this.open = false
    document.removeEventListener('visibilitychange', this.seen)
    this.disconnect()
  }

  private seen = (): void => {
    if (document.visibilityState === 'hidden') this.disconnect()
    else if (this.feed === null) {
      this.connect()
      void this.readTail()
    }
  }

  private set(change: Partial<Snapshot>): void {
    this.snapshot = { ...this.snapshot, ...change }
    for (const listener of this.listeners) listener()
  }

  private connect(): void {
    clearTimeout(this.retry)
    const feed = new EventSource(`${this.api.base}/events`)
    this.feed = feed
    feed.onopen = () => this.set({ link: 'open' })
    feed.onmessage = (message) => this.told(JSON.parse(message.data as string) as ThreadNews)
    feed.onerror = () => {
      this.set({ link: 'lost' })
      if (feed.readyState === EventSource.CLOSED && this.feed === feed) {
        this.feed = null
        this.retry = window.setTimeout(() => this.open && document.visibilityState === 'visible' && this.connect(), 2000)
      }
    }
  }

  private disconnect(): void {
    clearTimeout(this.retry)
    this.feed?.close()
    this.feed = null
    for (const stream of this.followed.values()) stream.close()
    this.followed.clear()
  }

  private told(news: ThreadNews): void {
    if (news.type === 'hello') {
      for (const run of news.runs ?? []) this.follow(run, '')
      // After a lost connection: what ended meanwhile stands in the log.
      if (this.snapshot.loaded) void this.readTail()
    } else if (news.type === 'run_started' && news.run) this.follow(news.run, '')
    else if (news.type === 'cleared' || news.type === 'branch') void this.reload()
    else if (news.type === 'turn_ended') void this.readTail()
    this.news(news)
  }

  /** Follows a run from the last event seen; the browser resumes by itself when the connection breaks. */
  private follow(run: string, text: string): void {
    if (this.followed.has(run)) return
    this.set({ thread: withRun(this.snapshot.thread, run, text) })
    const after = this.snapshot.thread.runs.find((one) => one.run === run)?.seq ?? 0
    const stream = new EventSource(`${this.api.base}/runs/${encodeURIComponent(run)}/events?after=${after}`)
    this.followed.set(run, stream)
    stream.onmessage = (message) => this.arrive(run, JSON.parse(message.data as string) as RunEvent)
    stream.onerror = () => {
      // 204 and 404 close the stream for good: all was told, or the thread was cleared.
      if (stream.readyState === EventSource.CLOSED) this.leave(run, stream)
    }
  }

  private leave(run: string, stream: EventSource): void {
    stream.close()
    if (this.followed.get(run) === stream) this.followed.delete(run)
    const turn = this.snapshot.thread.runs.find((one) => one.run === run)
    if (turn && !over(turn)) this.set({ thread: withoutRun(this.snapshot.thread, run) })
    if (this.open) void this.readTail()
  }

  /** Events are taken in once a frame: a fast stream doesn't draw more often than the screen. */
  private arrive(run: string, event: RunEvent): void {
    const waiting = this.arrived.get(run)
    if (waiting) waiting.push(event)
    else this.arrived.set(run, [event])
    if (event.type === 'turn_ended' || event.type === 'run_failed') this.flush()
    else if (!this.frame) this.frame = requestAnimationFrame(() => this.flush())
  }

  private flush(): void {
    cancelAnimationFrame(this.frame)
    this.frame = 0
    let thread = this.snapshot.thread
    for (const [run, events] of this.arrived) thread = withEvents(thread, run, events)
    const ended = [...this.arrived].filter(([, events]) => events.some((one) => one.type === 'turn_ended' || one.type === 'run_failed'))
    this.arrived.clear()
    this.set({ thread })
    for (const [run] of ended) {
      const stream = this.followed.get(run)
      if (stream) this.leave(run, stream)
    }
  }

  private reading: Promise<void> | null = null
  private again = false

  /** The newest page of the log. Asked for while one is on its way, it is read once more after it. */
  readTail(): Promise<void> {
    if (this.reading) {
      this.again = true
      return this.reading
    }
    this.reading = this.readOnce().finally(() => {
      this.reading = null
      if (this.again) {
        this.again = false
        void this.readTail()
      }
    })
    return this.reading
  }

  private async readOnce(): Promise<void> {
    try {
      const page = await this.api.records(null, PAGE)
      this.set({ thread: withTail(this.snapshot.thread, page.records, page.before), loaded: true, missing: false, error: null })
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
      if (error.code === 'not_found') this.set({ loaded: true, missing: true })
      else this.set({ error })
    }
  }

  /** Forget what is here and read anew: the thread was cleared, or another branch was chosen. */
  private async reload(): Promise<void> {
    for (const stream of this.followed.values()) stream.close()
    this.followed.clear()
    this.arrived.clear()
    this.set({ thread: EMPTY })
    await this.readTail()
  }

  async readOlder(): Promise<void> {
    const before = this.snapshot.thread.before
    if (before === null || this.snapshot.loadingOlder) return
    this.set({ loadingOlder: true })
    try {
      const page = await this.api.records(before, PAGE)
      this.set({ thread: withOlder(this.snapshot.thread, page.records, page.before), loadingOlder: false })
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
      this.set({ loadingOlder: false, error })
    }
  }

  /** Reads back until a record is among what is loaded. */
  async reach(record: number): Promise<boolean> {
    const first = () => this.snapshot.thread.records[0]?.seq ?? 0
    while (first() > record && this.snapshot.thread.before !== null && !this.snapshot.loadingOlder) await this.readOlder()
    return first() <= record
  }

  /** Sends; throws an `ApiError` with nothing left behind, so that the text can go back to where it was typed. */
  async send(text: string): Promise<void> {
    await this.begin(text, (run) => this.api.send(run, text))
  }

  async edit(turn: number, text: string): Promise<void> {
    await this.begin(text, (run) => this.api.edit(turn, run, text), turn)
  }

  async regenerate(turn: number, question: string): Promise<void> {
    await this.begin(question, (run) => this.api.again(turn, run), turn)
  }

  private async begin(text: string, ask: (run: string) => Promise<unknown>, from?: number): Promise<void> {
    const run = crypto.randomUUID()
    const before = this.snapshot.thread
    // A branch leaves from its turn: what came after it stands on the other one.
    const kept = from === undefined ? before : { ...before, records: before.records.filter((one) => one.turn < from) }
    this.set({ thread: withRun(kept, run, text), missing: false })
    try {
      await ask(run)
      this.follow(run, text)
    } catch (error) {
      this.set({ thread: withoutRun(from === undefined ? this.snapshot.thread : before, run) })
      throw error
    }
  }

  async halt(): Promise<void> {
    const going = this.snapshot.thread.runs.filter((run) => !over(run))
    await Promise.all(going.map((run) => this.api.stop(run.run)))
  }
}
