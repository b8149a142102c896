/** Highlighted code; loaded when a text has a block of it. */
import { useEffect, useState } from 'react'
import { createHighlighterCore, type HighlighterCore } from 'shiki/core'
import { createJavaScriptRegexEngine } from 'shiki/engine/javascript'
import { Plain } from './markdown'

const LANGUAGES: Record<string, () => Promise<unknown>> = {
  python: () => import('shiki/langs/python.mjs'),
  sql: () => import('shiki/langs/sql.mjs'),
  json: () => import('shiki/langs/json.mjs'),
  javascript: () => import('shiki/langs/javascript.mjs'),
  typescript: () => import('shiki/langs/typescript.mjs'),
  bash: () => import('shiki/langs/bash.mjs'),
  yaml: () => import('shiki/langs/yaml.mjs'),
  toml: () => import('shiki/langs/toml.mjs'),
}
const OTHER_NAMES: Record<string, string> = { py: 'python', js: 'javascript', ts: 'typescript', sh: 'bash', shell: 'bash', yml: 'yaml' }
/** Longer code is shown as it is: highlighting would hold up the page. */
const MOST_CHARS = 40_000

let made: Promise<HighlighterCore> | null = null

function highlighter(): Promise<HighlighterCore> {
  made ??= createHighlighterCore({
    themes: [import('shiki/themes/github-light-default.mjs'), import('shiki/themes/github-dark-default.mjs')],
    langs: [],
    engine: createJavaScriptRegexEngine(),
  })
  return made
}

export default function Code({ language, text }: { language: string; text: string }) {
  const [html, setHtml] = useState('')
  useEffect(() => {
    const name = OTHER_NAMES[language] ?? language
    const load = LANGUAGES[name]
    if (!load || text.length > MOST_CHARS) return
    let wanted = true
    const draw = async () => {
      const shiki = await highlighter()
      if (!shiki.getLoadedLanguages().includes(name)) await shiki.loadLanguage((await load()) as never)
      const made = shiki.codeToHtml(text, {
        lang: name,
        themes: { light: 'github-light-default', dark: 'github-dark-default' },
        defaultColor: 'light-dark()',
      })
      if (wanted) setHtml(made)
    }
    void draw()
    return () => {
      wanted = false
    }
  }, [language, text])
  // Shiki escapes the code; what it returns holds only its own spans.
  return html ? <div className="[&_pre]:!bg-transparent" dangerouslySetInnerHTML={{ __html: html }} /> : <Plain text={text} />
}
