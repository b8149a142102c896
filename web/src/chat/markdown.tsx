/** Markdown from models and files. It is untrusted: no raw HTML, no remote loads, only plain links. */
import { lazy, memo, Suspense, useState } from 'react'
import ReactMarkdown, { type Components, defaultUrlTransform } from 'react-markdown'
import remarkGfm from 'remark-gfm'
import { Copy } from 'lucide-react'
import { useText } from '../i18n'
import { IconButton } from '../ui/basics'

const Code = lazy(() => import('./code'))
const Maths = lazy(() => import('./maths'))

const HAS_MATHS = /\$\$[^$]+\$\$|\$[^\s$][^$\n]*[^\s$]\$|\$[^\s$]\$/

export const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  // An image's address may tell a stranger that the page was read: only pictures inside the text are shown.
  img: ({ src, alt }) =>
    typeof src === 'string' && src.startsWith('data:image/') ? <img src={src} alt={alt ?? ''} className="max-w-full" /> : <span>[{alt || src}]</span>,
  table: ({ children }) => (
    <div className="overflow-x-auto" tabIndex={0} role="group" aria-label="table">
      <table>{children}</table>
    </div>
  ),
  pre: ({ children }) => <>{children}</>,
  code: ({ className, children }) => {
    const text = String(children)
    const language = /language-([\w+-]+)/.exec(className ?? '')?.[1] ?? ''
    return language || text.includes('\n') ? <CodeBlock language={language} text={text.replace(/\n$/, '')} /> : <code>{children}</code>
  },
}

export function urlTransform(url: string): string {
  return url.startsWith('data:image/') ? url : defaultUrlTransform(url)
}

function CodeBlock({ language, text }: { language: string; text: string }) {
  const t = useText()
  const [copied, setCopied] = useState(false)
  const copy = async () => {
    await navigator.clipboard.writeText(text)
    setCopied(true)
  }
  return (
    <div className="overflow-hidden rounded-md border border-line bg-panel">
      <div className="flex items-center justify-between border-b border-line pl-3 text-xs text-soft">
        <span>{language || t.code}</span>
        <IconButton name={copied ? t.copied : t.copy} onClick={() => void copy()}>
          <Copy size={14} />
        </IconButton>
      </div>
      <div className="overflow-x-auto p-3 text-[13px] leading-relaxed" tabIndex={0} role="group" aria-label={language || t.code}>
        <Suspense fallback={<Plain text={text} />}>
          <Code language={language} text={text} />
        </Suspense>
      </div>
    </div>
  )
}

export function Plain({ text }: { text: string }) {
  return (
    <pre>
      <code>{text}</code>
    </pre>
  )
}

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const plain = (
    <ReactMarkdown remarkPlugins={[remarkGfm]} components={COMPONENTS} urlTransform={urlTransform}>
      {text}
    </ReactMarkdown>
  )
  return (
    <div className="prose-message">
      {HAS_MATHS.test(text) ? (
        <Suspense fallback={plain}>
          <Maths text={text} />
        </Suspense>
      ) : (
        plain
      )}
    </div>
  )
})
