/** What is remembered in every thread of the workspace, and the two switches. */
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { EyeOff, Pencil, Trash2 } from 'lucide-react'
import { Switch } from 'radix-ui'
import { type FormEvent, useState } from 'react'
import { ApiError, type WorkspaceApi } from '../api'
import { useText } from '../i18n'
import type { Fact, MemoryView } from '../types'
import { Button, Empty, IconButton, Modal, Note } from '../ui/basics'
import { useToasts } from '../ui/toasts'

interface Props {
  api: WorkspaceApi
  /** Opens the place in a thread that a fact rests on. */
  onSource: (thread: string, record: number) => void
}

export default function MemoryPanel({ api, onSource }: Props) {
  const t = useText()
  const toasts = useToasts()
  const queries = useQueryClient()
  const key = ['memory', api.base]
  const memory = useQuery({ queryKey: key, queryFn: api.memory, retry: false })
  const [text, setText] = useState('')
  const [confirming, setConfirming] = useState(false)
  const put = (now: MemoryView) => queries.setQueryData(key, now)
  const switches = useMutation({ mutationFn: api.switchMemory, onSuccess: put, onError: toasts.fail })
  const add = useMutation({
    mutationFn: (fact: string) => api.addFact({ text: fact }),
    onSuccess: () => {
      setText('')
      void queries.invalidateQueries({ queryKey: key })
    },
    onError: toasts.fail,
  })
  const edit = useMutation({ mutationFn: ({ id, to }: { id: string; to: string }) => api.editFact(id, to), onSuccess: put, onError: toasts.fail })
  const forget = useMutation({ mutationFn: (id: string) => api.forgetFacts([id]), onSuccess: (done) => put(done.memory), onError: toasts.fail })
  const remove = useMutation({
    mutationFn: (ids: string[] | 'all') => api.deleteFacts(ids === 'all' ? [] : ids, ids === 'all'),
    onSuccess: (done) => put(done.memory),
    onError: toasts.fail,
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (text.trim()) add.mutate(text.trim())
  }
  const shown = memory.data
  const active = shown?.facts.filter((fact) => fact.status === 'active') ?? []
  const folded = shown?.facts.filter((fact) => fact.status !== 'active') ?? []
  const row = (fact: Fact) => (
    <FactRow
      key={fact.id}
      fact={fact}
      onSource={onSource}
      onEdit={(to) => edit.mutate({ id: fact.id, to })}
      onForget={() => forget.mutate(fact.id)}
      onDelete={() => remove.mutate([fact.id])}
    />
  )
  return (
    <div className="space-y-4">
      {memory.error instanceof ApiError && <Note bad>{t.problem(memory.error.problem)}</Note>}
      {shown && (
        <>
          <SwitchRow name={t.useMemory} explained={t.useMemoryExplained} on={shown.use} onChange={(use) => switches.mutate({ use })} />
          <SwitchRow name={t.extract} explained={t.extractExplained} on={shown.extract} onChange={(extract) => switches.mutate({ extract })} />
          <div className="grid grid-cols-2 gap-3">
            <Meter name={t.facts} now={shown.meters.facts} most={shown.meters.most_facts} />
            <Meter name={t.characters} now={shown.meters.chars} most={shown.meters.most_chars} />
          </div>
          <form onSubmit={submit} className="flex gap-2">
            <input className="field" aria-label={t.newFact} placeholder={t.newFactPlaceholder} maxLength={2000} value={text} onChange={(event) => setText(event.target.value)} />
            <Button type="submit" disabled={!text.trim() || add.isPending}>
              {t.remember}
            </Button>
          </form>
          {active.length === 0 ? (
            <Empty>{shown.use ? t.memoryEmpty : t.memoryOff}</Empty>
          ) : (
            <ul className="space-y-1" aria-label={t.facts}>
              {active.map(row)}
            </ul>
          )}
          {folded.length > 0 && (
            <details>
              <summary className="text-sm text-soft">{t.folded(folded.length)}</summary>
              <ul className="mt-1 space-y-1">{folded.map(row)}</ul>
            </details>
          )}
          <div className="flex gap-2 border-t border-line pt-3">
            <a
              className="inline-flex min-h-8 items-center rounded-md border border-line px-2.5 text-sm hover:bg-raised"
              download="memory.json"
              href={`data:application/json,${encodeURIComponent(JSON.stringify({ facts: shown.facts }, null, 2))}`}
            >
              {t.exportFacts}
            </a>
            <Button look="bad" disabled={shown.facts.length === 0} onClick={() => setConfirming(true)}>
              {t.deleteAll}
            </Button>
          </div>
          <DeleteAll open={confirming} count={shown.facts.length} onClose={() => setConfirming(false)} onDelete={() => remove.mutate('all')} />
        </>
      )}
    </div>
  )
}

function SwitchRow({ name, explained, on, onChange }: { name: string; explained: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <label className="flex items-start gap-3">
      <Switch.Root checked={on} onCheckedChange={onChange} aria-label={name} className="mt-0.5 h-6 w-10 shrink-0 rounded-full border border-line bg-raised data-[state=checked]:bg-accent">
        <Switch.Thumb className="block size-4 translate-x-1 rounded-full bg-soft transition-transform data-[state=checked]:translate-x-5 data-[state=checked]:bg-accent-ink" />
      </Switch.Root>
      <span className="text-sm">
        <span className="font-medium">{name}</span>
        <span className="block text-soft">{explained}</span>
      </span>
    </label>
  )
}

function Meter({ name, now, most }: { name: string; now: number; most: number }) {
  const t = useText()
  return (
    <div className="text-xs text-soft">
      <p className="flex justify-between">
        <span>{name}</span>
        <span className="tabular-nums">{`${t.number(now)}/${t.number(most)}`}</span>
      </p>
      <div className="h-1.5 rounded bg-raised" role="meter" aria-label={name} aria-valuemin={0} aria-valuemax={most} aria-valuenow={now}>
        <div className="h-full rounded bg-accent" style={{ width: `${Math.min(100, (100 * now) / most)}%` }} />
      </div>
    </div>
  )
}

interface FactProps {
  fact: Fact
  onSource: (thread: string, record: number) => void
  onEdit: (text: string) => void
  onForget: () => void
  onDelete: () => void
}

function FactRow({ fact, onSource, onEdit, onForget, onDelete }: FactProps) {
  const t = useText()
  const [text, setText] = useState<string | null>(null)
  const source = fact.source
  const save = () => {
    if (text?.trim() && text !== fact.text) onEdit(text.trim())
    setText(null)
  }
  return (
    <li className="rounded-md border border-line px-2 py-1.5 text-sm">
      {text === null ? (
        <p className={`[overflow-wrap:anywhere] ${fact.status === 'active' ? '' : 'text-soft'}`}>{fact.text}</p>
      ) : (
        <input
          className="field"
          autoFocus
          aria-label={t.editFact}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onBlur={save}
          onKeyDown={(event) => {
            if (event.key === 'Enter') save()
            if (event.key === 'Escape') setText(null)
          }}
        />
      )}
      <div className="flex flex-wrap items-center gap-x-2 text-xs text-soft">
        <span>{t.origins[fact.origin] ?? fact.origin}</span>
        {source && (
          <button type="button" className="text-accent underline" aria-label={t.evidence(source.record, source.quote)} onClick={() => onSource(source.thread, source.record)}>
            #{source.record}
          </button>
        )}
        <span>{t.when(fact.created_at)}</span>
        <span>{t.importance(fact.importance)}</span>
        {fact.used.count > 0 && <span>{t.usedIn(fact.used.count)}</span>}
        {fact.status !== 'active' && <span className="text-warn">{t.factStatus[fact.status] ?? fact.status}</span>}
        <span className="flex-1" />
        {fact.status === 'active' && (
          <>
            <IconButton name={t.editFact} onClick={() => setText(fact.text)}>
              <Pencil size={14} />
            </IconButton>
            <IconButton name={t.forget} onClick={onForget}>
              <EyeOff size={14} />
            </IconButton>
          </>
        )}
        <IconButton name={t.deleteFact} onClick={onDelete}>
          <Trash2 size={14} />
        </IconButton>
      </div>
    </li>
  )
}

function DeleteAll({ open, count, onClose, onDelete }: { open: boolean; count: number; onClose: () => void; onDelete: () => void }) {
  const t = useText()
  const [typed, setTyped] = useState('')
  const done = () => {
    setTyped('')
    onClose()
  }
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (typed !== t.deleteWord) return
    onDelete()
    done()
  }
  return (
    <Modal open={open} onClose={done} title={t.deleteAll}>
      <form onSubmit={submit} className="space-y-3">
        <p>{t.deleteAllExplained(count)}</p>
        <label className="block text-sm">
          {t.typeToConfirm(t.deleteWord)}
          <input className="field mt-1" value={typed} onChange={(event) => setTyped(event.target.value)} autoComplete="off" />
        </label>
        <div className="flex justify-end gap-2">
          <Button onClick={done}>{t.cancel}</Button>
          <Button look="bad" type="submit" disabled={typed !== t.deleteWord}>
            {t.deleteAll}
          </Button>
        </div>
      </form>
    </Modal>
  )
}
