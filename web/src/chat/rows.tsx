/** The rows of the transcript: a question, a piece of an answer, and what stands under an answer. */
import { ChevronLeft, ChevronRight, Copy, Layers, Pencil, RefreshCw } from 'lucide-react'
import { useRef, useState } from 'react'
import { useText } from '../i18n'
import { over, type Piece, type Prose, type Turn } from '../state/turns'
import type { Fork } from '../types'
import { Button, IconButton, Note } from '../ui/basics'
import { ToolCard } from './card'
import type { Chat } from './conversation'
import { Markdown } from './markdown'
import { Strip } from './strip'

export function Question({ turn, chat }: { turn: Turn; chat: Chat }) {
  const t = useText()
  const [editing, setEditing] = useState(false)
  const [text, setText] = useState('')
  const pencil = useRef<HTMLButtonElement>(null)
  const options = chat.forks.get(turn.record)
  const close = () => {
    setEditing(false)
    requestAnimationFrame(() => pencil.current?.focus())
  }
  const submit = () => {
    if (!text.trim() || text === turn.question.text) return close()
    void chat.edit(turn, text).then(() => setEditing(false))
  }
  return (
    <div className="group ml-auto w-fit max-w-[90%]">
      <h2 className="sr-only">{t.you}</h2>
      {editing ? (
        <div className="w-[min(40rem,85vw)] space-y-2">
          <textarea
            className="field min-h-24"
            aria-label={t.editQuestion}
            value={text}
            autoFocus
            onChange={(event) => setText(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === 'Escape') close()
              if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) submit()
            }}
          />
          {turn.pieces.some((piece) => piece.kind === 'call') && <p className="text-xs text-soft">{t.notUndone(turn.pieces.filter((piece) => piece.kind === 'call').length)}</p>}
          <div className="flex justify-end gap-2">
            <Button onClick={close}>{t.cancel}</Button>
            <Button look="main" onClick={submit}>
              {t.askAgain}
            </Button>
          </div>
        </div>
      ) : (
        <div className="rounded-2xl rounded-br-sm bg-raised px-3.5 py-2">
          <p className="whitespace-pre-wrap [overflow-wrap:anywhere]">{turn.question.text}</p>
          {turn.question.cut && <Whole prose={turn.question} chat={chat} />}
          {turn.attached && <p className="mt-1 text-xs text-soft">{t.attachedAs(turn.attached)}</p>}
        </div>
      )}
      {!editing && over(turn) && turn.turn > 0 && (
        <div className="flex items-center justify-end">
          {options && <Pager options={options} question={turn.record} chat={chat} />}
          <IconButton name={t.copyQuestion} onClick={() => void navigator.clipboard.writeText(turn.question.text)}>
            <Copy size={14} />
          </IconButton>
          <button
            ref={pencil}
            type="button"
            aria-label={t.editQuestion}
            title={t.editQuestion}
            disabled={chat.busy}
            className="inline-flex size-8 items-center justify-center rounded-md text-soft hover:bg-raised disabled:opacity-40"
            onClick={() => {
              setText(turn.question.text)
              setEditing(true)
            }}
          >
            <Pencil size={14} />
          </button>
        </div>
      )}
      {turn.state === 'waiting' && <p className="text-right text-xs text-soft">{t.waiting}</p>}
    </div>
  )
}

function Pager({ options, question, chat }: { options: Fork['options']; question: number; chat: Chat }) {
  const t = useText()
  const now = options.findIndex((one) => one.question === question)
  const before = options[now - 1]
  const after = options[now + 1]
  return (
    <span className="flex items-center text-xs text-soft" role="group" aria-label={t.branches}>
      <IconButton name={t.branchBefore} disabled={!before || chat.busy} onClick={() => before && chat.select(before.record)}>
        <ChevronLeft size={14} />
      </IconButton>
      <span>{`${now + 1}/${options.length}`}</span>
      <IconButton name={t.branchAfter} disabled={!after || chat.busy} onClick={() => after && chat.select(after.record)}>
        <ChevronRight size={14} />
      </IconButton>
    </span>
  )
}

function Whole({ prose, chat }: { prose: Prose; chat: Chat }) {
  const t = useText()
  const cut = prose.cut
  if (!cut) return null
  return (
    <p className="mt-1 text-xs">
      <span className="text-soft">{t.beginningOf(prose.text.length, cut.chars)} </span>
      <button type="button" className="text-accent underline" onClick={() => chat.whole(cut.record)}>
        {t.readWhole}
      </button>
    </p>
  )
}

export function Answer({ piece, turn, chat, going }: { piece: Piece; turn: Turn; chat: Chat; going: boolean }) {
  const t = useText()
  if (piece.kind === 'call') return <ToolCard call={piece} run={turn.run} chat={chat} />
  if (piece.kind === 'thinking')
    return (
      <details className="rounded-md border border-line bg-panel px-3 py-1.5 text-sm text-soft">
        <summary>{t.thinking}</summary>
        <p className="mt-1 whitespace-pre-wrap">{piece.text}</p>
      </details>
    )
  return (
    <div>
      <h2 className="sr-only">Tenuto</h2>
      <Markdown text={piece.text} />
      {piece.cut && <Whole prose={piece} chat={chat} />}
      {going && <span className="ml-0.5 inline-block h-4 w-1.5 animate-pulse bg-accent align-middle" aria-hidden />}
    </div>
  )
}

function answerText(turn: Turn): string {
  return turn.pieces.flatMap((piece) => (piece.kind === 'text' ? [piece.text] : [])).join('\n\n')
}

export function RowFoot({ turn, chat }: { turn: Turn; chat: Chat }) {
  const t = useText()
  if (!over(turn)) return turn.pieces.length === 0 && turn.state === 'running' ? <p className="text-sm text-soft">{t.working}</p> : null
  const text = answerText(turn)
  return (
    <div className="space-y-1.5">
      {turn.notices.map((notice) => (
        <Note key={notice}>{notice}</Note>
      ))}
      {turn.state === 'stopped' && <Note>{t.stopped(text.length)}</Note>}
      {turn.state === 'failed' && (
        <Note bad>
          <span>{turn.error ? t.problem({ code: turn.error.code, detail: turn.error.message, hint: turn.error.hint }) : t.failed}</span>{' '}
          <Button className="ml-2" onClick={() => chat.retry(turn)} disabled={chat.busy}>
            {t.retry}
          </Button>
        </Note>
      )}
      {turn.notSaved && <Note>{t.notSaved}</Note>}
      {turn.context?.coverage === 'partial' && <Note>{t.partial}</Note>}
      {turn.turn > 0 && (
        <div className="flex flex-wrap items-center">
          <div className="min-w-0 flex-1">{turn.context && <Strip context={turn.context} usage={turn.usage} onOpen={() => chat.openContext(turn.turn)} />}</div>
          <IconButton name={t.showContext} onClick={() => chat.openContext(turn.turn)}>
            <Layers size={14} />
          </IconButton>
          <IconButton name={t.copyAnswer} disabled={!text} onClick={() => void navigator.clipboard.writeText(text)}>
            <Copy size={14} />
          </IconButton>
          <IconButton name={t.regenerate} disabled={chat.busy} onClick={() => chat.again(turn)}>
            <RefreshCw size={14} />
          </IconButton>
        </div>
      )}
    </div>
  )
}
