/** The transcript: a virtual list of rows. The reader is never moved, unless he is at the end. */
import { ArrowDown } from 'lucide-react'
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react'
import { Virtualizer, type VirtualizerHandle } from 'virtua'
import type { ThreadApi } from '../api'
import { useText } from '../i18n'
import { over, type Thread, type Turn, turnsOf } from '../state/turns'
import type { Fork } from '../types'
import { Button } from '../ui/basics'
import { Answer, Question, RowFoot } from './rows'

/** What rows may ask for. */
export interface Chat {
  api: ThreadApi
  /** Siblings of a turn, by its question's record. */
  forks: Map<number, Fork['options']>
  busy: boolean
  edit: (turn: Turn, text: string) => Promise<void>
  again: (turn: Turn) => void
  retry: (turn: Turn) => void
  select: (record: number) => void
  decide: (run: string, call: string, allow: boolean) => void
  openContext: (turn: number) => void
  preview: (file: string) => void
  whole: (record: number) => void
}

type Row = { key: string; turn: Turn; part: 'question' | 'foot' | number; set: { pos: number; size: number } }

const NEAR_END = 80

function rowsOf(turns: Turn[]): Row[] {
  return turns.flatMap((turn, index): Row[] => {
    const name = turn.turn > 0 ? `t${turn.turn}` : turn.run
    const set = { pos: index + 1, size: turns.length }
    return [
      ...(turn.question.text || turn.run ? [{ key: `${name}:q`, turn, part: 'question' as const, set }] : []),
      ...turn.pieces.map((_, number) => ({ key: `${name}:${number}`, turn, part: number, set })),
      { key: `${name}:f`, turn, part: 'foot' as const, set },
    ]
  })
}

interface Props {
  thread: Thread
  chat: Chat
  loadingOlder: boolean
  readOlder: () => void
  /** A record to bring into view, with a number that grows with each wish. */
  wanted: { record: number; wish: number } | null
}

export function Conversation({ thread, chat, loadingOlder, readOlder, wanted }: Props) {
  const t = useText()
  const turns = useMemo(() => turnsOf(thread), [thread])
  const rows = useMemo(() => rowsOf(turns), [turns])
  const list = useRef<VirtualizerHandle>(null)
  const box = useRef<HTMLDivElement>(null)
  const atEnd = useRef(true)
  const [away, setAway] = useState(false)
  const [flash, setFlash] = useState(0)
  // Older records came in front: the list then keeps what is in view where it is.
  const oldest = thread.records[0]?.seq ?? 0
  const known = useRef(0)
  const prepended = oldest > 0 && oldest < known.current
  useLayoutEffect(() => {
    known.current = oldest
  }, [oldest])

  // Set at once and by the box alone: a scroll that the list carries on with later would fight the reader's hand.
  const toEnd = useCallback(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight
  }, [])

  useLayoutEffect(() => {
    if (atEnd.current) toEnd()
  }, [rows, toEnd])

  // What is measured late (pictures, highlighted code) changes the height too.
  useEffect(() => {
    const element = box.current?.firstElementChild
    if (!element) return
    const watcher = new ResizeObserver(() => {
      if (atEnd.current) toEnd()
    })
    watcher.observe(element)
    return () => watcher.disconnect()
  }, [toEnd])

  const scrolled = () => {
    const element = box.current
    if (!element) return
    const end = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END
    atEnd.current = end
    setAway(!end)
    if (element.scrollTop < 600 && thread.before !== null && !loadingOlder) readOlder()
  }

  useEffect(() => {
    if (!wanted) return
    // The turn that a record belongs to is the last one that began before it.
    const turn = turns.findLast((one) => one.record > 0 && one.record <= wanted.record) ?? turns[0]
    const index = rows.findIndex((row) => row.turn === turn)
    if (index >= 0) {
      atEnd.current = false
      list.current?.scrollToIndex(index, { align: 'start' })
      setFlash(rows[index]!.turn.turn)
    }
    // Only a new wish scrolls: what streams in later must not.
    // eslint-disable-next-line
  }, [wanted])

  const moveFocus = (event: React.KeyboardEvent) => {
    if (!event.altKey || (event.key !== 'ArrowUp' && event.key !== 'ArrowDown')) return
    event.preventDefault()
    const articles = [...(box.current?.querySelectorAll<HTMLElement>('article') ?? [])]
    const now = articles.findIndex((one) => one.contains(document.activeElement))
    const next = articles[event.key === 'ArrowUp' ? (now < 0 ? articles.length : now) - 1 : now + 1]
    next?.focus()
    next?.scrollIntoView({ block: 'nearest' })
  }

  return (
    <div className="relative min-h-0 flex-1">
      <div
        ref={box}
        role="log"
        aria-live="off"
        aria-label={t.conversation}
        tabIndex={0}
        onScroll={scrolled}
        onKeyDown={moveFocus}
        data-testid="transcript"
        className="h-full overflow-y-auto overscroll-contain px-3 py-4 [overflow-anchor:none]"
      >
        <div className="mx-auto max-w-[780px]">
          {loadingOlder && <p className="py-1 text-center text-xs text-soft">{t.loading}</p>}
          <Virtualizer ref={list} scrollRef={box} shift={prepended} bufferSize={600}>
            {rows.map((row) => (
              <RowView key={row.key} row={row} chat={chat} flash={flash !== 0 && row.turn.turn === flash} />
            ))}
          </Virtualizer>
        </div>
      </div>
      {away && (
        <Button
          className="absolute bottom-2 left-1/2 -translate-x-1/2 shadow"
          onClick={() => {
            atEnd.current = true
            toEnd()
          }}
        >
          <ArrowDown size={15} aria-hidden /> {t.toEnd}
        </Button>
      )}
    </div>
  )
}


function RowView({ row, chat, flash }: { row: Row; chat: Chat; flash: boolean }) {
  const mark = flash ? 'flash' : ''
  const place = { 'aria-posinset': row.set.pos, 'aria-setsize': row.set.size }
  if (row.part === 'question')
    return (
      <article {...place} tabIndex={-1} className={`pt-5 pb-1 ${mark}`} data-turn={row.turn.turn}>
        <Question turn={row.turn} chat={chat} />
      </article>
    )
  if (row.part === 'foot')
    return (
      <div className="pb-2">
        <RowFoot turn={row.turn} chat={chat} />
      </div>
    )
  const piece = row.turn.pieces[row.part]
  return (
    <article {...place} tabIndex={-1} className="py-1.5" data-turn={row.turn.turn}>
      {piece && <Answer piece={piece} turn={row.turn} chat={chat} going={!over(row.turn) && row.part === row.turn.pieces.length - 1} />}
    </article>
  )
}
