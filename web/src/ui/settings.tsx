/** Settings: how the page looks, models, tool servers, and every value of the workspace with its origin. */
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Tabs } from 'radix-ui'
import { type FormEvent, useState } from 'react'
import { ApiError, type WorkspaceApi } from '../api'
import { type Language, type Theme, useLook, useText } from '../i18n'
import { Button, Modal, Note } from './basics'
import { useToasts } from './toasts'

export function SettingsDialog({ open, api, onClose }: { open: boolean; api: WorkspaceApi; onClose: () => void }) {
  const t = useText()
  const tab = 'min-h-8 rounded-md px-2.5 text-sm data-[state=active]:bg-raised data-[state=active]:font-medium'
  return (
    <Modal open={open} onClose={onClose} title={t.settings} wide>
      <Tabs.Root defaultValue="look">
        <Tabs.List className="mb-3 flex flex-wrap gap-1" aria-label={t.settings}>
          <Tabs.Trigger className={tab} value="look">{t.appearance}</Tabs.Trigger>
          <Tabs.Trigger className={tab} value="models">{t.models}</Tabs.Trigger>
          <Tabs.Trigger className={tab} value="tools">{t.toolServers}</Tabs.Trigger>
          <Tabs.Trigger className={tab} value="values">{t.allSettings}</Tabs.Trigger>
          <Tabs.Trigger className={tab} value="usage">{t.usage}</Tabs.Trigger>
        </Tabs.List>
        <Tabs.Content value="look"><LookTab /></Tabs.Content>
        <Tabs.Content value="models"><ModelsTab api={api} /></Tabs.Content>
        <Tabs.Content value="tools"><ToolsTab api={api} /></Tabs.Content>
        <Tabs.Content value="values"><ValuesTab api={api} /></Tabs.Content>
        <Tabs.Content value="usage"><UsageTab api={api} /></Tabs.Content>
      </Tabs.Root>
    </Modal>
  )
}

function LookTab() {
  const t = useText()
  const { language, setLanguage, theme, setTheme } = useLook()
  return (
    <div className="max-w-xs space-y-3 text-sm">
      <label className="block">
        {t.language}
        <select className="field mt-1" value={language} onChange={(event) => setLanguage(event.target.value as Language)}>
          <option value="zh" lang="zh">中文</option>
          <option value="en" lang="en">English</option>
        </select>
      </label>
      <label className="block">
        {t.theme}
        <select className="field mt-1" value={theme} onChange={(event) => setTheme(event.target.value as Theme)}>
          {(['system', 'light', 'dark'] as const).map((one) => (
            <option key={one} value={one}>
              {t.themes[one]}
            </option>
          ))}
        </select>
      </label>
    </div>
  )
}

function ModelsTab({ api }: { api: WorkspaceApi }) {
  const t = useText()
  const toasts = useToasts()
  const queries = useQueryClient()
  const models = useQuery({ queryKey: ['models', api.base], queryFn: api.models, retry: false })
  const [form, setForm] = useState({ name: '', model: '', base_url: '', api_key: '' })
  const add = useMutation({
    mutationFn: api.addModel,
    onSuccess: (now) => {
      queries.setQueryData(['models', api.base], now)
      setForm({ name: '', model: '', base_url: '', api_key: '' })
      toasts.tell(t.modelAdded)
    },
    onError: toasts.fail,
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    add.mutate({ ...form })
  }
  const field = (name: keyof typeof form, label: string, placeholder: string, type = 'text') => (
    <label className="block text-sm">
      {label}
      <input className="field mt-1" type={type} placeholder={placeholder} autoComplete="off" value={form[name]} onChange={(event) => setForm({ ...form, [name]: event.target.value })} />
    </label>
  )
  return (
    <div className="space-y-4">
      {models.error instanceof ApiError && <Note bad>{t.problem(models.error.problem)}</Note>}
      <ul className="space-y-1 text-sm">
        {models.data?.models.map((one) => (
          <li key={one.name} className="flex flex-wrap items-center gap-2 rounded-md border border-line px-2 py-1.5">
            <span className="font-medium">{one.name}</span>
            <span className="min-w-0 flex-1 truncate text-soft">{one.model}</span>
            {one.default && <span className="text-xs text-good">{t.inUse}</span>}
            {one.found ? (
              <Button onClick={() => add.mutate({ name: one.name, model: one.model, base_url: one.base_url, api_key: '', default: true })}>{t.addFound}</Button>
            ) : (
              !one.default && <Button onClick={() => add.mutate({ name: one.name, model: '', default: true })}>{t.useByDefault}</Button>
            )}
          </li>
        ))}
      </ul>
      <form onSubmit={submit} className="max-w-md space-y-2">
        <h3 className="text-sm font-semibold">{t.addModel}</h3>
        {field('name', t.modelName, 'mine')}
        {field('model', t.modelId, 'openai:gpt-5')}
        {field('base_url', t.baseUrl, 'http://127.0.0.1:8080/v1')}
        {field('api_key', t.apiKey, '', 'password')}
        <p className="text-xs text-soft">{t.keyExplained}</p>
        <Button type="submit" look="main" disabled={!form.name || !form.model || add.isPending}>
          {t.add}
        </Button>
      </form>
    </div>
  )
}

function ToolsTab({ api }: { api: WorkspaceApi }) {
  const t = useText()
  const toasts = useToasts()
  const queries = useQueryClient()
  const servers = useQuery({ queryKey: ['tools', api.base], queryFn: api.tools, retry: false })
  const [form, setForm] = useState({ name: '', where: '' })
  const add = useMutation({
    mutationFn: api.addServer,
    onSuccess: (now) => {
      queries.setQueryData(['tools', api.base], now)
      setForm({ name: '', where: '' })
      toasts.tell(t.serverAdded)
    },
    onError: toasts.fail,
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    add.mutate({ ...form })
  }
  return (
    <div className="space-y-4">
      {servers.error instanceof ApiError && <Note bad>{t.problem(servers.error.problem)}</Note>}
      <ul className="space-y-1 text-sm">
        {servers.data?.servers.map((one) => (
          <li key={one.name} className="rounded-md border border-line px-2 py-1.5">
            <span className="font-medium">{one.name}</span> <span className="text-soft [overflow-wrap:anywhere]">{one.where}</span>
          </li>
        ))}
      </ul>
      <form onSubmit={submit} className="max-w-md space-y-2">
        <h3 className="text-sm font-semibold">{t.addServer}</h3>
        <label className="block text-sm">
          {t.serverName}
          <input className="field mt-1" value={form.name} placeholder="sales" onChange={(event) => setForm({ ...form, name: event.target.value })} />
        </label>
        <label className="block text-sm">
          {t.serverWhere}
          <input className="field mt-1" value={form.where} placeholder="https://…/mcp   python -m my.server" onChange={(event) => setForm({ ...form, where: event.target.value })} />
        </label>
        <p className="text-xs text-soft">{t.serverExplained}</p>
        <Button type="submit" look="main" disabled={!form.name || !form.where || add.isPending}>
          {t.add}
        </Button>
      </form>
    </div>
  )
}

function ValuesTab({ api }: { api: WorkspaceApi }) {
  const t = useText()
  const settings = useQuery({ queryKey: ['settings', api.base], queryFn: api.settings, retry: false })
  if (settings.error instanceof ApiError) return <Note bad>{t.problem(settings.error.problem)}</Note>
  return (
    <div className="overflow-x-auto" tabIndex={0} role="group" aria-label={t.allSettings}>
      <table className="data-table w-full text-xs">
        <thead>
          <tr>
            <th scope="col">{t.setting}</th>
            <th scope="col">{t.value}</th>
            <th scope="col">{t.source}</th>
          </tr>
        </thead>
        <tbody>
          {settings.data?.settings.map((one) => (
            <tr key={one.key}>
              <th scope="row" className="font-mono">{one.key}</th>
              <td className="[overflow-wrap:anywhere]">{`${typeof one.value === 'string' ? one.value : JSON.stringify(one.value)} ${one.unit}`}</td>
              <td>{one.source}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function UsageTab({ api }: { api: WorkspaceApi }) {
  const t = useText()
  const usage = useQuery({ queryKey: ['usage', api.base], queryFn: api.usage, retry: false })
  if (usage.error instanceof ApiError) return <Note bad>{t.problem(usage.error.problem)}</Note>
  const columns = ['turns', 'requests', 'input_tokens', 'cached_tokens', 'output_tokens'] as const
  return (
    <div className="overflow-x-auto" tabIndex={0} role="group" aria-label={t.usage}>
      <table className="data-table w-full text-xs">
        <thead>
          <tr>
            <th scope="col">{t.thread}</th>
            {columns.map((one) => (
              <th key={one} scope="col">{t.usageColumns[one]}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {usage.data?.threads.map((one) => (
            <tr key={String(one.thread)}>
              <th scope="row">{String(one.title) || t.untitled}</th>
              {columns.map((column) => (
                <td key={column} className="tabular-nums">{t.number(Number(one[column]))}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
