/** The reducer: live, resumed and told from the log are one and the same. */
import fc from 'fast-check'
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { asked, EMPTY, fromRecords, step, type Turn, turnsOf, withEvents, withOlder, withRun, withTail } from '../src/state/turns'
import type { LogRecord, RunEvent } from '../src/types'

/** A turn as a model may make it: rounds of text, thoughts and calls, each call with its result. */
const round = fc.record({
  thought: fc.string({ maxLength: 8 }),
  pieces: fc.array(fc.string({ minLength: 1, maxLength: 6 }), { maxLength: 4 }),
  calls: fc.array(
    fc.record({
      tool: fc.constantFrom('query_energy', 'run_python'),
      printed: fc.array(fc.string({ maxLength: 5 }), { maxLength: 3 }),
      outcome: fc.constantFrom('success', 'failed', 'denied'),
      text: fc.string({ maxLength: 9 }),
      rows: fc.option(fc.nat(9999)),
    }),
    { maxLength: 2 },
  ),
})
const story = fc.record({ question: fc.string({ minLength: 1 }), rounds: fc.array(round, { minLength: 1, maxLength: 4 }), reason: fc.constantFrom('answered', 'stopped') })
type Story = typeof story extends fc.Arbitrary<infer T> ? T : never

function told({ question, rounds, reason }: Story): { events: RunEvent[]; records: LogRecord[] } {
  const events: RunEvent[] = []
  const records: LogRecord[] = []
  const event = (type: string, data: Record<string, unknown>) => events.push({ v: 1, seq: events.length + 1, run: 'r', type, at: 'T', data })
  const record = (more: Partial<LogRecord>) =>
    records.push({ seq: records.length + 3, id: String(records.length), parent: null, turn: 1, at: 'T', tokens: 0, kind: 'event', ...more })
  const part = (kind: string, text: string, more = {}) => ({ kind, text, chars: text.length, cut: false, ...more }) as never
  event('run_started', { thread: 't', question, source: 'live' })
  event('turn_started', { turn: 1, question_seq: 3, model: 'm', attached: '', notices: [] })
  record({ kind: 'question', parts: [part('text', question)] })
  rounds.forEach(({ thought, pieces, calls }, number) => {
    const context = { step: number, model: 'm', layers: [], tokens: 1, window: 9, output: 1, stable_share: 1, coverage: 'full', left_out: 0 }
    event('request_sent', { step: number, context })
    record({ event: { type: 'request', context } })
    const parts: never[] = []
    if (thought) {
      event('thinking_delta', { text: thought })
      parts.push(part('thinking', thought))
    }
    for (const text of pieces) event('text_delta', { text })
    if (pieces.length) parts.push(part('text', pieces.join('')))
    calls.forEach(({ tool }, at) => {
      event('tool_called', { call_id: `${number}.${at}`, tool, arguments: { a: 1 } })
      parts.push(part('call', '{"a":1}', { call_id: `${number}.${at}`, tool }))
    })
    if (parts.length) record({ kind: 'answer', parts })
    calls.forEach(({ tool, printed, outcome, text, rows }, at) => {
      for (const piece of printed) event('tool_output', { call_id: `${number}.${at}`, text: piece })
      const data = { call_id: `${number}.${at}`, tool, outcome, text, ms: 5, result: '', rows, files: ['a.png'] }
      event('tool_returned', data)
      record({ kind: 'results', parts: [part('returned', text, data)] })
    })
  })
  const usage = { requests: 1, input_tokens: 2, cached_tokens: 0, output_tokens: 1, cost_usd: null }
  event('turn_ended', { turn: 1, reason, answer: '', usage, error: null, not_saved: false })
  record({ event: { type: 'turn_ended', reason, usage } })
  return { events, records }
}

/** What a person can see: a call's beginning is known only while it runs, the run's name and numbers to nobody. */
function visible(turn: Turn): unknown {
  return { ...turn, run: '', seq: 0, pieces: turn.pieces.map((piece) => (piece.kind === 'call' ? { ...piece, began: '' } : piece)) }
}

describe('a turn', () => {
  test('told live is the turn told from the log', () => {
    fc.assert(
      fc.property(story, (one) => {
        const { events, records } = told(one)
        const live = events.reduce(step, asked('r', one.question))
        const [logged] = fromRecords(records)
        expect(visible(live)).toEqual(visible(logged!))
      }),
    )
  })

  test('is the same however its events are cut up, repeated and resumed', () => {
    fc.assert(
      fc.property(story, fc.array(fc.tuple(fc.nat(40), fc.nat(40)), { maxLength: 6 }), (one, cuts) => {
        const { events } = told(one)
        const whole = events.reduce(step, asked('r', ''))
        let resumed = asked('r', '')
        for (const [from, to] of cuts) {
          // A reader that has seen `seq` asks for what follows; a careless one is told some of it again.
          for (const event of events.slice(Math.min(from, resumed.seq), to)) resumed = step(resumed, event)
        }
        for (const event of events.slice(resumed.seq)) resumed = step(resumed, event)
        expect(resumed).toEqual(whole)
      }),
    )
  })

  test('passes over events of a type it does not know', () => {
    const { events } = told({ question: 'q', rounds: [{ thought: '', pieces: ['a'], calls: [] }], reason: 'answered' })
    const before = events.slice(0, 4).reduce(step, asked('r', ''))
    const after = step(before, { v: 1, seq: 5, run: 'r', type: 'from_the_future', at: '', data: {} })
    expect({ ...after, seq: before.seq }).toEqual(before)
  })

  test('leaves no call running when it has ended', () => {
    const started: RunEvent = { v: 1, seq: 1, run: 'r', type: 'tool_called', at: '', data: { call_id: 'c', tool: 't', arguments: {} } }
    const ended: RunEvent = { v: 1, seq: 2, run: 'r', type: 'turn_ended', at: '', data: { reason: 'stopped' } }
    const turn = [started, ended].reduce(step, asked('r', ''))
    expect(turn.pieces).toMatchObject([{ kind: 'call', state: 'interrupted' }])
  })
})

describe('a thread', () => {
  const { events, records } = told({ question: 'q', rounds: [{ thought: '', pieces: ['a'], calls: [] }], reason: 'answered' })

  test('shows a turn once while its run and its records both tell it', () => {
    let thread = withRun(withTail(EMPTY, records.slice(0, 1), null), 'r', 'q')
    for (const event of events) {
      thread = withEvents(thread, 'r', [event])
      expect(turnsOf(thread)).toHaveLength(1)
    }
    thread = withTail(thread, records, null)
    expect(thread.runs).toHaveLength(0)
    expect(turnsOf(thread)).toHaveLength(1)
  })

  test('keeps older pages when the newest is read again, and drops them for another branch', () => {
    const thread = withOlder(withTail(EMPTY, records.slice(2), 5), records.slice(0, 2), null)
    expect(withTail(thread, records.slice(2), 5)).toMatchObject({ records, before: null })
    const other = records.slice(2).map((record) => ({ ...record, id: 'x' + record.id }))
    expect(withTail(thread, other, 5)).toMatchObject({ records: other, before: 5 })
  })
})

test.runIf(process.env.TENUTO_TOLD)('what the server told live is what it tells from its log', () => {
  const { events, records } = JSON.parse(readFileSync(process.env.TENUTO_TOLD!, 'utf8')) as { events: RunEvent[]; records: LogRecord[] }
  const live = events.reduce(step, asked('r', ''))
  const [logged] = fromRecords(records)
  const plain = (turn: Turn) => ({ ...(visible(turn) as object), at: '' })
  expect(plain(live)).toEqual(plain(logged!))
  expect(live.pieces.filter((piece) => piece.kind === 'call')).not.toHaveLength(0)
})
